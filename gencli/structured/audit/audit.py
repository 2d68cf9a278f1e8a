"""What a back end makes of a schema, keyword by keyword, before anything is loaded.

The verdicts rest on probes of the installed back end (support.json), never on its documentation. A shape
that no probe has shown to be exact is not called enforced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gencli.structured.audit.shapes import shapes_of
from gencli.structured.audit.support import SUPPORT, Grade
from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.plan import Audit, Enforcement, Finding, Plan, Variant
from gencli.structured.schema.misspelled import likely_keywords
from gencli.structured.schema.pointers import child
from gencli.structured.schema.refs import walk

__all__ = ["Graded", "audit", "audit_json", "finding", "graded", "without_formats"]

_WORST: tuple[Grade, ...] = ("refused", "unknown", "loose", "tight", "exact")
_VERDICTS: dict[Grade, tuple[Enforcement, str]] = {
    "exact": ("mask", ""),
    "tight": ("mask", "the mask also refuses some valid values"),
    "loose": ("check", "the mask lets some invalid values through"),
    "refused": ("check", "no grammar can be made of it"),
    "unknown": ("unknown", "not probed in this combination"),
}


@dataclass(frozen=True, slots=True)
class Graded:
    """A keyword at its place in a schema, and the worst that was seen of its shapes."""

    pointer: str
    keyword: str
    grade: Grade
    shape: str


def graded(schema: Any, backend: str, deadline: Deadline = NEVER) -> Iterator[Graded]:
    """Each keyword that can refuse a value. OutOfTime if that takes too long."""
    support = SUPPORT[backend]
    for pointer, below in walk(schema):
        worst: dict[str, Graded] = {}
        for keyword, shape in deadline.watch(shapes_of(below)):
            one = Graded(child(pointer, keyword), keyword, support.grade(shape), shape)
            worst[keyword] = min(worst.get(keyword, one), one, key=lambda each: _WORST.index(each.grade))
        yield from worst.values()


def audit(schema: Any, backend: str) -> Audit:
    """The schema as it stands: which keywords the mask of this back end enforces."""
    return Audit(backend, tuple(finding(one) for one in graded(schema, backend)))


def finding(one: Graded) -> Finding:
    """What is said of a graded keyword."""
    if one.shape.startswith("?"):
        what = "format" if one.keyword == "format" else "keyword"
        near = ", though nearly ".join(["", *likely_keywords(one.keyword)[:1]])
        reason = f"not a {what} of JSON Schema{near}: nothing checks it"
        return Finding(one.pointer, one.keyword, "unknown", reason)
    verdict, reason = _VERDICTS[one.grade]
    shape = f" ({one.shape})" if reason and one.shape != one.keyword else ""
    return Finding(one.pointer, one.keyword, verdict, reason + shape)


def without_formats(plan: Plan) -> Plan:
    """The plan where `format` is a remark to the final check: what no mask enforces of it nobody does."""
    return replace(plan, variants=tuple(map(_unchecked, plan.variants)))


def _unchecked(variant: Variant) -> Variant:
    findings = (
        replace(one, verdict="unknown", reason=f"{one.reason}; checked with --formats only")
        if (one.keyword, one.verdict) == ("format", "check")
        else one
        for one in variant.audit.findings
    )
    return replace(variant, audit=replace(variant.audit, findings=tuple(findings)))


def audit_json(plan: Plan) -> dict[str, Any]:
    """The plan as JSON: the chosen back end, why, and the findings of each variant."""
    return {
        "backend": plan.variants[0].audit.backend,
        "reason": plan.reason,
        "exact": plan.variants[0].audit.is_exact,
        "variants": [
            {
                "backend": variant.audit.backend,
                "exact": variant.audit.is_exact,
                "findings": [
                    {
                        "pointer": one.pointer,
                        "keyword": one.keyword,
                        "verdict": one.verdict,
                        "reason": one.reason,
                    }
                    for one in variant.audit.findings
                ],
            }
            for variant in plan.variants
        ],
    }
