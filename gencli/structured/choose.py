"""The choice of a back end for a schema: the one that enforces all, or more, of its keywords."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from gencli.structured.audit.audit import Graded, duplicate_name_finding, finding, free_names, graded
from gencli.structured.audit.relax import above, relax, split_origins
from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.errors import GiveUp, SchemaError
from gencli.structured.plan import UNIQUE_NAMES, Audit, Finding, Plan, Variant
from gencli.structured.rewrite.rewrite import Rewritten
from gencli.structured.rewrite.rewrite import rewrite as rewritten_for
from gencli.structured.schema.drafts import Draft, draft_of
from gencli.structured.schema.groups import declared_types
from gencli.structured.schema.pointers import child
from gencli.structured.schema.published import with_published
from gencli.structured.schema.refs import walk
from processors.constraint import MAX_EXPONENT, MAX_NUMBER, WHITESPACE, Constraint
from processors.grammar.backends.json_lark import unmarked

__all__ = ["Candidate", "candidate", "choose"]

_BACKENDS = ("xgrammar", "llguidance")
_ONCE = ", but for free names that come twice"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant with its numbers of `loose` (not enforced) and `tight` (too strictly enforced) keywords.

    `is_endless`: formats have no length limit.
    """

    variant: Variant
    loose: int
    tight: int
    is_endless: bool = False

    @property
    def is_understood(self) -> bool:
        """Whether the mask or the final check enforces each keyword."""
        return all(one.verdict != "unknown" for one in self.variant.audit.findings)

    @property
    def is_exact(self) -> bool:
        """Whether the mask allows exactly the valid values."""
        return self.loose == self.tight == 0


def choose(
    schema: Any,
    backend: Literal["auto", "xgrammar", "llguidance"] = "auto",
    *,
    whitespace: int = WHITESPACE,
    extra: bool = False,
    any_order: bool = False,
    rewrite: bool = True,
    deadline: Deadline = NEVER,
) -> Plan:
    """Return the variants of a schema, best first, and the reason for the order.

    `extra`: allow additional properties where the schema does not mention them. `any_order`: allow properties
    in any order. With `rewrite=False`, or if the rewritten schema becomes too large, each back end gets the
    given schema without the keywords that it rejects. Raises SchemaError if no value satisfies the schema,
    and OutOfTime.
    """
    schema = with_published(schema)
    names = _BACKENDS if backend == "auto" else (backend,)
    found = [
        candidate(
            schema,
            name,
            whitespace=whitespace,
            extra=extra,
            any_order=any_order,
            rewrite=rewrite,
            deadline=deadline,
        )
        for name in names
    ]
    found = [_known(one, draft_of(schema)) for one in found]
    if backend != "auto":
        rest = "" if found[0].is_exact else ", and does not enforce all of this schema"
        return Plan((found[0].variant,), f"{backend} was asked for{rest}.", schema)
    best, other, reason = _ordered(*found)
    return Plan((best.variant, other.variant), reason, schema)


def _ordered(first: Candidate, second: Candidate) -> tuple[Candidate, Candidate, str]:
    """Return the candidates of xgrammar and llguidance, better one first, and the reason."""
    whole = "all of this schema" + " that is understood" * (not (first.is_understood or second.is_understood))
    whole += _ONCE * any(one.keyword == UNIQUE_NAMES for one in first.variant.audit.findings)
    if first.is_exact and first.is_endless and second.is_exact and not second.is_endless:
        reason = f"llguidance enforces {whole}; xgrammar does, too, but with formats without a length."
        return second, first, reason
    if first.is_exact:
        return first, second, f"xgrammar enforces {whole}."
    if second.is_exact:
        return second, first, f"llguidance enforces {whole}, xgrammar does not: {_why(first)}."
    none = "No back end enforces all of this schema"
    if (second.loose, second.tight) <= (first.loose, first.tight):
        return second, first, f"{none}, llguidance more of it: {_why(second)}."
    return first, second, f"{none}, xgrammar more of it: {_why(first)}."


def _known(one: Candidate, draft: Draft) -> Candidate:
    """Return the candidate; keywords that its draft lacks are not called enforced by the final check."""
    audit = one.variant.audit
    findings = tuple(
        replace(each, verdict="unknown", reason=f"not a keyword of draft {draft.name}: nothing checks it")
        if each.verdict == "check" and each.keyword not in {*draft.judged(), UNIQUE_NAMES}
        else each
        for each in audit.findings
    )
    return replace(one, variant=replace(one.variant, audit=replace(audit, findings=findings)))


def _why(one: Candidate) -> str:
    """Return a short reason why a candidate is not exact."""
    findings = one.variant.audit.findings
    told = [each for each in findings if each.verdict != "mask" and each.keyword != UNIQUE_NAMES] or [
        each for each in findings if "valid" in each.reason
    ]
    if not told:
        return "some valid values are not generated"
    more = f", and {len(told) - 1} more" if len(told) > 1 else ""
    return f"{told[0].keyword} at {told[0].pointer} ({told[0].reason}){more}"


def candidate(
    schema: Any,
    backend: str,
    *,
    whitespace: int = WHITESPACE,
    extra: bool = False,
    any_order: bool = False,
    rewrite: bool = True,
    deadline: Deadline = NEVER,
) -> Candidate:
    """Return one back end's variant of a schema, with its grades."""
    if not rewrite:
        return _as_it_stands(schema, backend, whitespace, deadline)
    try:
        form = rewritten_for(schema, backend, extra=extra, any_order=any_order, deadline=deadline)
        return _rewritten(schema, form, backend, whitespace, deadline)
    except GiveUp:
        return _as_it_stands(schema, backend, whitespace, deadline)


def _rewritten(schema: Any, form: Rewritten, backend: str, whitespace: int, deadline: Deadline) -> Candidate:
    """Return the candidate with the rewritten schema. Raises GiveUp if the unchanged schema is better."""
    if form.schema is False:
        if form.tight or form.left:
            raise GiveUp("nothing is left of it")
        raise SchemaError(
            "Nothing satisfies this schema.", pointer="", hint="Look for bounds that exclude each other."
        )
    spelled, at = split_origins(form.schema)
    spelled, grades, gone = relax(spelled, backend, deadline)
    lost = _places(at, {one.pointer for one in gone})
    left = {**form.left, **dict.fromkeys(lost, "no grammar can be made of it")}
    carriers: dict[str, list[Graded]] = {}
    for one in grades:
        for place in at.get(one.pointer, ()):
            carriers.setdefault(place, []).append(one)
    inside = [one for one in grades if one.grade != "exact"]
    homeless = [finding(replace(one, pointer="")) for one in inside if not at.get(one.pointer)]
    told = _limited(
        schema, _opened(schema, list(_told(graded(schema, backend, deadline), carriers, left, form)))
    )
    findings = (*told, *homeless)
    loose = sum(one.verdict != "mask" and not one.reason.startswith("not a ") for one in findings)
    loose = max(loose, len(left), len(gone) + sum(one.grade != "tight" for one in inside))
    tight = len(form.tight) + sum(one.grade == "tight" for one in inside)
    constraint = Constraint("json_schema", json.dumps(spelled, ensure_ascii=False), backend, whitespace)
    free = {
        place.rpartition("/")[0] for here in free_names(spelled) for place in at.get(child(*here)) or [""]
    }
    findings = (*findings, *map(duplicate_name_finding, sorted(free)))
    variant = Variant(constraint, Audit(backend, findings))
    return Candidate(variant, loose, tight, is_endless=bool(form.unbounded))


_LOST = "the rewriting lost it"


def _places(at: dict[str, frozenset[str]], pointers: set[str]) -> set[str]:
    """Return the places in the given schema from which these keywords and all below them originate."""
    below = (key for key in at if any(one in pointers for one in (key, *above(key))))
    return {place for key in below for place in at[key]}


def _told(
    keywords: Iterable[Graded], carriers: dict[str, list[Graded]], left: dict[str, str], form: Rewritten
) -> Iterable[Finding]:
    """Yield one finding for each reachable keyword of the given schema."""
    for one in keywords:
        note = form.tight.get(one.pointer) or form.notes.get(one.pointer, "")
        if one.shape.startswith("?"):
            yield finding(one)
        elif one.pointer in left:
            yield Finding(one.pointer, one.keyword, "check", left[one.pointer])
        elif one.pointer in carriers:
            told = [finding(each) for each in carriers[one.pointer]]
            worst = next((each for each in told if each.verdict != "mask"), None) or max(
                told, key=lambda each: each.reason
            )
            yield Finding(one.pointer, one.keyword, worst.verdict, worst.reason or note)
        elif note:
            yield Finding(one.pointer, one.keyword, "mask", note)
        elif one.pointer in form.unsatisfiable:
            yield Finding(one.pointer, one.keyword, "mask", "rewritten: left out, for nothing satisfies it")
        elif one.pointer in form.reachable:
            yield Finding(one.pointer, one.keyword, "unknown", _LOST)


_NUMBERS = f"numbers have at most {MAX_NUMBER} characters and {MAX_EXPONENT} digits of an exponent"


def _limited(schema: Any, findings: list[Finding]) -> list[Finding]:
    """Return the findings; those of numbers name the limits that masks keep, if they have no other reason."""
    numbers = {
        child(pointer, "type")
        for pointer, here in walk(schema)
        if isinstance(here, dict) and "number" in declared_types(here)
    }
    return [
        replace(one, reason=_NUMBERS)
        if one.pointer in numbers and one.verdict == "mask" and not one.reason
        else one
        for one in findings
    ]


# Keywords that depend on the subschema of another keyword; a "/" includes everything below it.
_CONDITIONS = {"if": ("if/", "then/", "else/"), "not": ("not/",), "oneOf": ("oneOf",)}


def _opened(schema: Any, findings: list[Finding]) -> list[Finding]:
    """Return the findings; keywords that depend on an open condition become open too."""
    left = [one.pointer for one in findings if one.verdict != "mask" and not one.reason.startswith("not a ")]
    causes: dict[str, str] = {}  # dependent place -> pointer of the open keyword
    for pointer, here in walk(schema) if left else ():
        for keyword in _CONDITIONS.keys() & here.keys() if isinstance(here, dict) else ():
            below = child(pointer, keyword) + "/"
            if cause := next((one for one in left if one.startswith(below)), ""):
                causes |= {f"{pointer}/{name}": cause for name in _CONDITIONS[keyword]}

    def opened(one: Finding) -> Finding:
        places = (one.pointer, *(f"{place}/" for place in (one.pointer, *above(one.pointer))))
        cause = next((causes[place] for place in places if place in causes), "")
        is_open = cause and one.verdict == "mask"
        return (
            replace(one, verdict="check", reason=f"it hangs on {cause}, which stays open") if is_open else one
        )

    return list(map(opened, findings))


def _as_it_stands(schema: Any, backend: str, whitespace: int, deadline: Deadline) -> Candidate:
    # Only the rewriting may set marks.
    relaxed, grades, gone = relax(unmarked(schema), backend, deadline)
    dropped = {one.pointer for one in gone}
    findings = [finding(one) for one in (*gone, *(one for one in grades if one.pointer not in dropped))]
    loose = sum(
        one.grade not in ("exact", "tight") and not one.shape.startswith("?") for one in (*gone, *grades)
    )
    tight = sum(one.grade == "tight" for one in grades)
    constraint = Constraint("json_schema", json.dumps(relaxed, ensure_ascii=False), backend, whitespace)
    findings += [duplicate_name_finding(pointer) for pointer, _ in free_names(relaxed)]
    return Candidate(Variant(constraint, Audit(backend, tuple(findings))), loose, tight)
