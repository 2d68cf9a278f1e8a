"""Which back end runs a schema: the one that the audit trusts with all of it, else the one that does more."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from gencli.structured.audit.audit import Graded, finding, graded
from gencli.structured.audit.relax import relax, spell
from gencli.structured.errors import SchemaError
from gencli.structured.plan import Audit, Finding, Plan, Variant
from gencli.structured.rewrite.node import GiveUp
from gencli.structured.rewrite.normal import Rewritten
from gencli.structured.rewrite.normal import rewrite as rewritten_for
from processors.grammar.constraint import Constraint

__all__ = ["Candidate", "candidate", "choose"]

_BACKENDS = ("xgrammar", "llguidance")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant, and how it was graded: `loose` keywords it does not enforce, `tight` ones it overdoes."""

    variant: Variant
    loose: int
    tight: int

    @property
    def is_exact(self) -> bool:
        """Whether the mask allows every valid value, and no other."""
        return self.loose == self.tight == 0


def choose(
    schema: Any,
    backend: Literal["auto", "xgrammar", "llguidance"] = "auto",
    *,
    whitespace: int = 8,
    extra: bool = False,
    rewrite: bool = True,
) -> Plan:
    """The variants of a schema in the order in which they are tried, and why.

    `extra` allows additional properties where the schema is silent; `rewrite=False` gives the schema to the
    back ends as it stands, without what they refuse. SchemaError if nothing satisfies the schema.
    """
    names = _BACKENDS if backend == "auto" else (backend,)
    found = [candidate(schema, name, whitespace=whitespace, extra=extra, rewrite=rewrite) for name in names]
    if backend != "auto":
        return Plan((found[0].variant,), f"{backend} was asked for.", schema)
    first, second = found
    if first.is_exact:
        reason = "xgrammar enforces all of this schema."
    elif second.is_exact:
        first, second = second, first
        reason = f"llguidance enforces all of this schema, xgrammar does not: {_why(second)}."
    elif (second.loose, second.tight) <= (first.loose, first.tight):
        first, second = second, first
        reason = f"No back end enforces all of this schema, llguidance more of it: {_why(first)}."
    else:
        reason = f"No back end enforces all of this schema, xgrammar more of it: {_why(first)}."
    return Plan((first.variant, second.variant), reason, schema)


def _why(one: Candidate) -> str:
    """What is not exact, in a few words."""
    findings = one.variant.audit.findings
    told = [each for each in findings if each.verdict != "mask"] or [
        each for each in findings if "valid" in each.reason
    ]
    if not told:
        return "some valid values are not generated"
    more = f", and {len(told) - 1} more" if len(told) > 1 else ""
    return f"{told[0].keyword} at {told[0].pointer} ({told[0].reason}){more}"


def candidate(
    schema: Any, backend: str, *, whitespace: int = 8, extra: bool = False, rewrite: bool = True
) -> Candidate:
    """One back end's variant of a schema, with its grades."""
    form = _rewritten(schema, backend, extra) if rewrite else None
    if form is None:
        return _as_it_stands(schema, backend, whitespace)
    if form.schema is False:
        if form.tight or form.left:
            return _as_it_stands(schema, backend, whitespace)
        raise SchemaError(
            "Nothing satisfies this schema.", pointer="", hint="Look for bounds that exclude each other."
        )
    spelled, at = spell(form.schema)
    spelled, grades, gone = relax(spelled, backend)
    left = dict(form.left)
    for one in gone:
        left.update(dict.fromkeys(_places(at, one.pointer), "no grammar can be made of it"))
    carriers: dict[str, list[Graded]] = {}
    for one in grades:
        for place in at.get(one.pointer, ()):
            carriers.setdefault(place, []).append(one)
    inside = [one for one in grades if one.grade != "exact"]
    homeless = [finding(replace(one, pointer="")) for one in inside if not at.get(one.pointer)]
    findings = (*_told(graded(schema, backend), carriers, left, form), *homeless)
    loose = sum(one.verdict != "mask" and not one.reason.startswith("not a ") for one in findings)
    loose = max(loose, len(left), len(gone) + sum(one.grade != "tight" for one in inside))
    tight = len(form.tight) + sum(one.grade == "tight" for one in inside)
    constraint = Constraint("json_schema", json.dumps(spelled, ensure_ascii=False), backend, whitespace)
    return Candidate(Variant(constraint, Audit(backend, findings)), loose, tight)


_LOST = "the rewriting lost it"


def _rewritten(schema: Any, backend: str, extra: bool) -> Rewritten | None:
    try:
        return rewritten_for(schema, backend, extra=extra)
    except GiveUp:
        return None


def _places(at: dict[str, frozenset[str]], pointer: str) -> set[str]:
    """The places that a keyword and all below it come from."""
    return {
        place
        for key, places in at.items()
        if key == pointer or key.startswith(pointer + "/")
        for place in places
    }


def _told(
    keywords: Iterable[Graded], carriers: dict[str, list[Graded]], left: dict[str, str], form: Rewritten
) -> Iterable[Finding]:
    """One finding for each keyword of the schema as it was given, if anything leads there."""
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
        elif one.pointer in form.never:
            yield Finding(one.pointer, one.keyword, "mask", "rewritten: left out, for nothing satisfies it")
        elif one.pointer in form.seen:
            yield Finding(one.pointer, one.keyword, "unknown", _LOST)


def _as_it_stands(schema: Any, backend: str, whitespace: int) -> Candidate:
    relaxed, grades, gone = relax(schema, backend)
    dropped = {one.pointer for one in gone}
    findings = [finding(one) for one in (*gone, *grades) if one in gone or one.pointer not in dropped]
    loose = sum(
        one.grade not in ("exact", "tight") and not one.shape.startswith("?") for one in (*gone, *grades)
    )
    tight = sum(one.grade == "tight" for one in grades)
    constraint = Constraint("json_schema", json.dumps(relaxed, ensure_ascii=False), backend, whitespace)
    return Candidate(Variant(constraint, Audit(backend, tuple(findings))), loose, tight)
