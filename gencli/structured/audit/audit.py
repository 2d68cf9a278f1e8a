"""Grades of the keywords of a schema for a back end, and findings from them.

The grades come from probes of the installed back ends (support.json), never from their documentation. A
keyword counts as enforced only if a probe has shown that its shape is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gencli.structured.audit.shapes import shapes_of
from gencli.structured.audit.support import SUPPORT, Grade
from gencli.structured.check.misspelled import likely_keywords
from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.plan import UNIQUE_NAMES, Audit, Enforcement, Finding, Plan, Variant
from gencli.structured.schema.groups import APPLICATORS, GROUPS, declared_types
from gencli.structured.schema.pointers import child
from gencli.structured.schema.refs import walk

__all__ = [
    "Graded",
    "audit",
    "audit_json",
    "duplicate_name_finding",
    "finding",
    "free_names",
    "graded",
    "without_formats",
]

_WORST: tuple[Grade, ...] = ("refused", "unknown", "loose", "tight", "exact")
_VERDICTS: dict[Grade, tuple[Enforcement, str]] = {
    "exact": ("mask", ""),
    "tight": ("mask", "the mask also refuses some valid values"),
    "loose": ("check", "the mask lets some invalid values through"),
    "refused": ("check", "no grammar can be made of it"),
    "unknown": ("unknown", "not probed in this combination"),
}


_ELSEWHERE = frozenset((*APPLICATORS, "enum", "const"))
_NAMING = ("additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "type")


@dataclass(frozen=True, slots=True)
class Graded:
    """A keyword at one place of a schema; `grade` is the worst grade of its shapes."""

    pointer: str
    keyword: str
    grade: Grade
    shape: str


def graded(schema: Any, backend: str, deadline: Deadline = NEVER) -> Iterator[Graded]:
    """Yield each keyword that can reject a value, with its grade. Raises OutOfTime."""
    support = SUPPORT[backend]
    for pointer, below in walk(schema):
        worst: dict[str, Graded] = {}
        for keyword, shape in deadline.watch(shapes_of(below)):
            one = Graded(child(pointer, keyword), keyword, support.grade(shape), shape)
            worst[keyword] = min(worst.get(keyword, one), one, key=lambda each: _WORST.index(each.grade))
        yield from worst.values()


def audit(schema: Any, backend: str) -> Audit:
    """Audit a schema for a back end without rewriting it."""
    return Audit(backend, tuple(finding(one) for one in graded(schema, backend)))


def finding(one: Graded) -> Finding:
    """Return the finding for a graded keyword."""
    if one.shape.startswith("?"):
        what = "format" if one.keyword == "format" else "keyword"
        near = ", though nearly ".join(["", *likely_keywords(one.keyword)[:1]])
        reason = f"not a {what} of JSON Schema{near}: nothing checks it"
        return Finding(one.pointer, one.keyword, "unknown", reason)
    verdict, reason = _VERDICTS[one.grade]
    shape = f" ({one.shape})" if reason and one.shape != one.keyword else ""
    return Finding(one.pointer, one.keyword, verdict, reason + shape)


def free_names(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield each object of a schema that may have arbitrary property names.

    Each is a pair: the object's JSON pointer, and the keyword that leaves the names free, or "".
    """
    for pointer, below in walk(schema):
        if below is True or (isinstance(below, dict) and _is_free(below)):
            named = below if isinstance(below, dict) else {}
            yield (
                pointer,
                next((keyword for keyword in _NAMING if named.get(keyword, False) is not False), ""),
            )


def _is_free(schema: dict[str, Any]) -> bool:
    """Whether a value of the schema may be, or contain, an object with arbitrary property names."""
    types = declared_types(schema) or {"object", "array"}
    if not schema.keys() & {"type", *GROUPS["object"], *GROUPS["array"]} and schema.keys() & _ELSEWHERE:
        return False
    if "array" in types and "items" not in schema and schema.get("maxItems", 1) > 0:
        return True
    if "object" not in types or schema.get("maxProperties", 2) < 2:
        return False
    rest = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
    return bool(schema.get("patternProperties")) or rest is not False


def duplicate_name_finding(pointer: str) -> Finding:
    """Return the finding that an object with free property names may repeat a name."""
    return Finding(pointer, UNIQUE_NAMES, "check", "the mask lets a name that is free come twice")


def without_formats(plan: Plan) -> Plan:
    """Return the plan for a final check that ignores `format`.

    A format that the mask does not enforce is then not enforced at all.
    """
    return replace(plan, variants=tuple(map(_unchecked, plan.variants)))


def _unchecked(variant: Variant) -> Variant:
    findings = (
        replace(one, verdict="unknown", reason=f"{one.reason}; checked with `formats` only")
        if (one.keyword, one.verdict) == ("format", "check")
        else one
        for one in variant.audit.findings
    )
    return replace(variant, audit=replace(variant.audit, findings=tuple(findings)))


def audit_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON: the chosen back end, the reason, and the findings of each variant."""
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
