"""What is said of a plan before a run, and refused if that was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from gencli.errors import ConfigError
from gencli.structured.plan import UNIQUE_NAMES, Enforcement, Finding, Plan

__all__ = ["line", "meaning", "plan_notices", "refuse_open"]

_MEANINGS: dict[Enforcement, str] = {"mask": "mask", "check": "final check", "unknown": "not understood"}
_NUM_SHOWN = 12
_NAMED = "name all properties and give additionalProperties: false, "


def plan_notices(plan: Plan) -> Iterator[str]:
    """What the mask does not enforce, keyword by keyword, and why; nothing where that is nothing.

    Where free names may come twice is not a keyword's doing; the audit lists that.
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


def refuse_open(plan: Plan, *, said: str) -> None:
    """Raise ConfigError where a mask leaves anything of the schema open."""
    if found := plan.variants[0].audit.open:
        lines = "\n".join(f"  {line(finding)}" for finding in found)
        names = any(finding.keyword == UNIQUE_NAMES for finding in found)
        raise ConfigError(
            f"{said}: {plan.variants[0].constraint.backend} does not enforce all of the schema:\n{lines}",
            hint=f"Take these out of the schema (a remark may be called x-NAME), {_NAMED * names}"
            f"or leave {said} out: the check at the end stands anyway.",
        )


def line(finding: Finding) -> str:
    """A finding in one line."""
    place = finding.pointer or "/"
    reason = f" ({finding.reason})" if finding.reason else ""
    return f"{finding.keyword} at {place}: {meaning(finding.verdict)}{reason}"


def meaning(verdict: Enforcement) -> str:
    """A verdict in words."""
    return _MEANINGS[verdict]
