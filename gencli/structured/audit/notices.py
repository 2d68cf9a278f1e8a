"""Notices about keywords that the mask does not enforce, and the error of `schema_strict`."""

from __future__ import annotations

from collections.abc import Iterator

from gencli.errors import ConfigError
from gencli.structured.plan import UNIQUE_NAMES, Enforcement, Finding, Plan

__all__ = ["line", "meaning", "plan_notices", "refuse_open"]

_MEANINGS: dict[Enforcement, str] = {"mask": "mask", "check": "final check", "unknown": "not understood"}
_NUM_SHOWN = 12
_NAMED = "name all properties and give additionalProperties: false, "


def plan_notices(plan: Plan) -> Iterator[str]:
    """Yield a notice that lists the keywords that the mask does not enforce, with reasons; else nothing.

    Repeated free property names are omitted, because no keyword requires unique names.
    """
    first = plan.variants[0]
    if first.constraint.kind != "json_schema":
        return
    found = [line(finding) for finding in first.audit.open if finding.keyword != UNIQUE_NAMES]
    if not found:
        return
    more = len(found) - _NUM_SHOWN
    rest = [f"and {more} more; gencli schema audit lists all"] if more > 0 else []
    yield "\n  ".join([plan.reason, *found[:_NUM_SHOWN], *rest])


def refuse_open(plan: Plan, *, name: str) -> None:
    """Raise ConfigError if the mask leaves any keyword of the schema to the final check."""
    if found := plan.variants[0].audit.open:
        lines = "\n".join(f"  {line(finding)}" for finding in found)
        names = any(finding.keyword == UNIQUE_NAMES for finding in found)
        raise ConfigError(
            f"{name}: {plan.variants[0].constraint.backend} does not enforce all of the schema:\n{lines}",
            hint=f"Take these out of the schema (a remark may be called x-NAME), {_NAMED * names}"
            f"or leave {name} out: the check at the end stands anyway.",
        )


def line(finding: Finding) -> str:
    """Return a finding as one line."""
    place = finding.pointer or "/"
    reason = f" ({finding.reason})" if finding.reason else ""
    return f"{finding.keyword} at {place}: {meaning(finding.verdict)}{reason}"


def meaning(verdict: Enforcement) -> str:
    """Return a verdict in words."""
    return _MEANINGS[verdict]
