"""The choice of a back end for a schema, the one that enforces all, or more, of its keywords, and the
rewriting of the schema for it: the same values, in keywords that it enforces. `alternatives` splits the
schema into flat schemas; then each type has its own rewrites. References become $defs, so that a
recursive schema stays finite.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from gencli.structured.alternatives import alternatives, distinct
from gencli.structured.audit import (
    Graded,
    above,
    duplicate_name_finding,
    finding,
    free_names,
    graded,
    is_of,
    relax,
    split_origins,
)
from gencli.structured.flat_schema import (
    ALSO,
    AT,
    FRACTION,
    Flat,
    Schema,
    Scope,
    intersect,
    key_of,
    mark,
    origins,
    origins_of,
    plain,
    put,
    without,
)
from gencli.structured.json_schema import (
    GROUPS,
    Draft,
    References,
    declared_types,
    draft_of,
    walk,
    with_published,
)
from gencli.structured.output_spec import UNIQUE_NAMES, Audit, KeywordFinding, Plan, PlanRequest, Variant
from gencli.structured.rewrite_objects import (
    branch_orders,
    drop_dead_properties,
    rewrite_array,
    rewrite_object,
    rewrite_unique,
    settle_marks,
)
from gencli.structured.rewrite_strings import rewrite_number, rewrite_string
from gencli.structured.schema_errors import GiveUp, SchemaError, child, descend
from processors.grammar.json_grammars import REFERENCE, unmarked
from processors.request_values import MAX_EXPONENT, MAX_NUMBER, Constraint, keys_of

_BACKENDS = ("xgrammar", "llguidance")
_USUAL = PlanRequest()
_ONCE = ", except that free names may come twice"


@dataclass(frozen=True, slots=True)
class BackendCandidate:
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
        return all(entry.verdict != "unknown" for entry in self.variant.audit.findings)

    @property
    def is_exact(self) -> bool:
        return self.loose == self.tight == 0


def choose(schema: Any, request: PlanRequest = _USUAL) -> Plan:
    """Return the variants of a schema, best first, and the reason for the order.

    Raises SchemaError if no value satisfies the schema, and OutOfTime.
    """
    schema, backend = with_published(schema), request.backend
    names = _BACKENDS if backend == "auto" else (backend,)
    candidates = [_judged_by_draft(candidate(schema, name, request), draft_of(schema)) for name in names]
    if backend != "auto":
        open_part = "" if candidates[0].is_exact else ", and does not enforce all of this schema"
        return Plan((candidates[0].variant,), f"{backend} was asked for{open_part}.", schema)
    best, other, reason = _ordered(*candidates)
    return Plan((best.variant, other.variant), reason, schema)


def _ordered(
    first: BackendCandidate, second: BackendCandidate
) -> tuple[BackendCandidate, BackendCandidate, str]:
    """Return the candidates of xgrammar and llguidance, better one first, and the reason."""
    whole = "all of this schema" + " that is understood" * (not (first.is_understood or second.is_understood))
    whole += _ONCE * any(entry.keyword == UNIQUE_NAMES for entry in first.variant.audit.findings)
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


def _judged_by_draft(rated: BackendCandidate, draft: Draft) -> BackendCandidate:
    """Return the candidate; keywords that its draft lacks are not called enforced by the final check."""
    judged = {*draft.judged(), UNIQUE_NAMES}
    reason = f"not a keyword of draft {draft.name}: nothing checks it"
    variant = rated.variant.changed(
        lambda entry: (
            replace(entry, verdict="unknown", reason=reason)
            if entry.verdict == "check" and entry.keyword not in judged
            else entry
        )
    )
    return replace(rated, variant=variant)


def _why(rated: BackendCandidate) -> str:
    """Return a short reason why a candidate is not exact."""
    findings = rated.variant.audit.findings
    reasons = [each for each in findings if each.verdict != "mask" and each.keyword != UNIQUE_NAMES] or [
        each for each in findings if "valid" in each.reason
    ]
    if not reasons:
        return "some valid values are not generated"
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{reasons[0].keyword} at {reasons[0].pointer} ({reasons[0].reason}){more}"


def candidate(schema: Any, backend: str, request: PlanRequest = _USUAL) -> BackendCandidate:
    """Return one back end's variant of a schema, with its grades."""
    with suppress(GiveUp):
        if request.rewrite:
            return _rewritten(*rewritten_for(schema, backend, request), request.whitespace)
    return _as_it_stands(schema, backend, request)


def _rewritten(rewritten: Schema, scope: Scope, whitespace: int) -> BackendCandidate:
    """Return the candidate with the rewritten schema. Raises GiveUp if the unchanged schema is better."""
    schema, backend, deadline = scope.root, scope.backend, scope.request.deadline
    if rewritten is False:
        if scope.tight or scope.left:
            raise GiveUp("nothing is left of it")
        raise SchemaError("Nothing satisfies this schema.", hint="Look for bounds that exclude each other.")
    spelled, at = split_origins(rewritten)
    spelled, grades, gone = relax(spelled, backend, deadline)
    removed = {keyword.pointer for keyword in gone}
    below = (key for key in at if any(pointer in removed for pointer in (key, *above(key))))
    lost = {origin for key in below for origin in at[key]}
    left = {**scope.left, **dict.fromkeys(lost, "no grammar can be made of it")}
    carriers: dict[str, list[Graded]] = {}
    for keyword in grades:
        for origin in at.get(keyword.pointer, ()):
            carriers.setdefault(origin, []).append(keyword)
    inside = [keyword for keyword in grades if keyword.grade != "exact"]
    homeless = [finding(replace(keyword, pointer="")) for keyword in inside if not at.get(keyword.pointer)]
    of_keywords = list(_keyword_findings(graded(schema, backend, deadline), carriers, left, scope))
    findings = (*_opened(schema, of_keywords), *homeless)
    loose = sum(entry.verdict != "mask" and not entry.reason.startswith("not a ") for entry in findings)
    loose = max(loose, len(left), len(gone) + sum(keyword.grade != "tight" for keyword in inside))
    tight = len(scope.tight) + sum(keyword.grade == "tight" for keyword in inside)
    constraint = Constraint("json_schema", json.dumps(spelled, ensure_ascii=False), backend, whitespace)
    free = dict(sorted(_free(schema, spelled, at).items()))
    audit = Audit(backend, (*findings, *free.values()))
    return BackendCandidate(Variant(constraint, audit), loose, tight, is_endless=bool(scope.unbounded))


def _free(schema: Any, spelled: Any, at: Mapping[str, frozenset[str]]) -> dict[str, KeywordFinding]:
    """Return the findings about free names of a rewritten schema, by places of the given one."""
    free: dict[str, KeywordFinding] = {}
    for pointer, keyword in free_names(spelled):
        places = {key.rpartition("/")[0] for key in at.get(child(pointer, keyword), ())}
        for place in places or {_nearest(schema, pointer, at)}:
            if places or place not in free:
                free[place] = duplicate_name_finding(place, is_typed=bool(places))
    return free


def _nearest(schema: Any, pointer: str, at: Mapping[str, frozenset[str]]) -> str:
    """Return the place of the given schema that is, or is nearest above, one of the rewritten schema."""
    for outer in above(f"{pointer}/"):
        if keys := at.get(outer):
            key = min(keys, key=lambda each: (len(each), each))
            place = key + pointer.removeprefix(outer)
            with suppress(KeyError):
                if isinstance(reduce(descend, keys_of(place), schema), dict | bool):  # no name of `required`
                    return place
            return key.rpartition("/")[0]
    return ""


def _keyword_findings(
    keywords: Iterable[Graded], carriers: dict[str, list[Graded]], left: dict[str, str], scope: Scope
) -> Iterable[KeywordFinding]:
    """Yield one finding for each reachable keyword of the given schema."""
    for keyword in keywords:
        at = keyword.pointer
        note = scope.tight.get(at) or scope.notes.get(at, "")
        mask = replace(finding(keyword), verdict="mask", reason=note)
        if keyword.shape.startswith("?"):
            yield finding(keyword)
        elif at in left:
            yield replace(mask, verdict="check", reason=left[at])
        elif at in carriers:
            carried = [finding(each) for each in carriers[at]]
            worst = next((each for each in carried if each.verdict != "mask"), None) or max(
                carried, key=lambda each: each.reason
            )
            yield replace(mask, verdict=worst.verdict, reason=worst.reason or note)
        elif note:
            yield mask
        elif at in scope.unsatisfiable:
            yield replace(mask, reason="rewritten: left out, because nothing satisfies it")
        elif at in scope.reachable:
            yield replace(mask, verdict="unknown", reason="the rewritten schema no longer has it")


_NUMBERS = f"numbers have at most {MAX_NUMBER} characters and {MAX_EXPONENT} digits of an exponent"
# Keywords that depend on the subschema of another keyword; a "/" includes everything below it.
_CONDITIONS = {"if": ("if/", "then/", "else/"), "not": ("not/",), "oneOf": ("oneOf",)}


def _opened(schema: Any, findings: list[KeywordFinding]) -> Iterator[KeywordFinding]:
    """Yield the findings; keywords that depend on an open condition become open too.

    Those of numbers name the limits that masks keep, if they have no other reason.
    """
    left = [
        each.pointer for each in findings if each.verdict != "mask" and not each.reason.startswith("not a ")
    ]
    causes: dict[str, str] = {}  # dependent pointer -> pointer of the open keyword
    numbers = set()
    for pointer, here in walk(schema):
        if not isinstance(here, dict):
            continue
        if "number" in declared_types(here):
            numbers.add(child(pointer, "type"))
        for keyword in _CONDITIONS.keys() & here.keys() if left else ():
            below = child(pointer, keyword) + "/"
            if cause := next((key for key in left if key.startswith(below)), ""):
                causes |= {f"{pointer}/{name}": cause for name in _CONDITIONS[keyword]}
    for entry in findings:
        keys = (entry.pointer, *(f"{outer}/" for outer in (entry.pointer, *above(entry.pointer))))
        cause = next((causes[key] for key in keys if key in causes), "")
        if cause and entry.verdict == "mask":
            reason = f"it depends on {cause}, which the mask does not enforce"
            yield replace(entry, verdict="check", reason=reason)
        elif entry.pointer in numbers and entry.verdict == "mask" and not entry.reason:
            yield replace(entry, reason=_NUMBERS)
        else:
            yield entry


def _as_it_stands(schema: Any, backend: str, request: PlanRequest) -> BackendCandidate:
    # Only the rewriting may set marks.
    relaxed, grades, gone = relax(unmarked(schema), backend, request.deadline)
    dropped = {keyword.pointer for keyword in gone}
    findings = list(map(finding, (*gone, *(each for each in grades if each.pointer not in dropped))))
    findings += [duplicate_name_finding(pointer, is_typed=bool(key)) for pointer, key in free_names(relaxed)]
    refused = [each for each in (*gone, *grades) if each.grade not in ("exact", "tight")]
    loose = sum(not keyword.shape.startswith("?") for keyword in refused)
    tight = sum(keyword.grade == "tight" for keyword in grades)
    text = json.dumps(relaxed, ensure_ascii=False)
    constraint = Constraint("json_schema", text, backend, request.whitespace)
    return BackendCandidate(Variant(constraint, Audit(backend, tuple(findings))), loose, tight)


_ALL = ["null", "boolean", "number", "string", "array", "object"]


def rewritten_for(schema: Any, backend: str, request: PlanRequest = _USUAL) -> tuple[Schema, Scope]:
    """Return the schema rewritten for a back end, with origins, and its scope with the findings.

    Raises GiveUp if it is too large or too deep, and OutOfTime.
    """
    scope = Scope(schema, backend, request, References(schema))
    try:
        return _Rewriter(scope).whole(mark(schema, "", scope)), scope
    except RecursionError:
        raise GiveUp("the schema is too deep") from None


class _Rewriter:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.names: dict[str, str] = {}  # schema as text -> name in $defs
        self.pending: list[tuple[str, Schema, bool]] = []  # name, schema, whether it is left unchanged
        self.defs: dict[str, Schema] = {}

    def whole(self, schema: Schema) -> Schema:
        rewritten = self.schema(schema)
        while self.pending:
            name, below, is_kept = self.pending.pop()
            self.defs[name] = self.unchanged(below) if is_kept else self.written_out(below)
        if self.defs and isinstance(rewritten, dict):
            rewritten = {**rewritten, "$defs": self.defs}
            kept = drop_void(rewritten)
            self.scope.unsatisfiable.update(origins(rewritten) - origins(kept))
            rewritten = kept
        return settle_marks(rewritten, self.scope) if isinstance(rewritten, dict) else rewritten

    def schema(self, schema: Schema) -> Schema:
        """Rewrite a subschema; one with references becomes a definition in $defs."""
        if isinstance(schema, bool):
            return {AT: {}} if schema else False  # some back ends reject `true` in some places
        return self.named(schema, is_kept=False) if _refers(schema) else self.written_out(schema)

    def named(self, schema: Flat, *, is_kept: bool) -> Flat:
        """Return a reference to the schema, which becomes a definition in $defs."""
        key = key_of(schema) + " as it is" * is_kept
        if key in self.names:
            self.scope.note(origins(schema), "rewritten: merged, as in another place")
        else:
            last = str(schema.get("$ref", "")).rpartition("/")[2]
            name = "".join(sign for sign in last if sign.isascii() and sign.isalnum()) or "schema"
            self.names[key] = f"{name}{len(self.names) + 1}"
            is_alone = schema.keys() == {"$ref", AT}
            below = self.scope.target(schema["$ref"]) if is_alone else schema
            self.pending.append((self.names[key], below, is_kept))
        return {"$ref": f"#/$defs/{self.names[key]}", AT: {"$ref": origins_of(schema, "$ref")}}

    def written_out(self, schema: Schema) -> Schema:
        if isinstance(schema, bool):
            return schema
        try:
            flats = self.whole_numbers(alternatives(schema, self.scope))
        except GiveUp:
            if self.scope.request.any_order:
                objects = (pointer for pointer in origins(schema) if pointer.endswith("/properties"))
                self.scope.narrow(objects, "in the schema's order, because this part is not rewritten")
            return self.unchanged(schema)  # type: ignore[no-any-return]
        branch_pointers = origins_of(schema, "anyOf", "oneOf")
        pointers = branch_pointers or frozenset(pointer for each in schema[AT].values() for pointer in each)
        branches = self.joined([branch for flat in flats for branch in self.finished(flat)])
        branches = [branch for flat in branches for branch in branch_orders(flat, self.scope, self.shared)]
        if len(branches) == 1:
            self.scope.note(branch_pointers, "rewritten: one branch is left")
            return branches[0]
        return {"anyOf": branches, AT: {"anyOf": pointers}} if branches else False

    def unchanged(self, schema: Any) -> Any:
        """Return the schema unchanged, except for the names of references."""
        if isinstance(schema, list):
            return [self.unchanged(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        literal = (AT, "enum", "const")
        copy = {key: below if key in literal else self.unchanged(below) for key, below in schema.items()}
        if AT in schema and "$ref" in schema:
            alone = {"$ref": schema["$ref"], AT: {"$ref": origins_of(schema, "$ref")}}
            copy["$ref"] = self.named(alone, is_kept=True)["$ref"]
        return copy

    def whole_numbers(self, flats: list[Flat]) -> list[Flat]:
        """Remove the type FRACTION: no back end can restrict numbers to non-integers."""
        kept = []
        for flat in flats:
            if FRACTION not in flat.get("type", ()):
                kept.append(flat)
                continue
            others = [kind for kind in flat["type"] if kind != FRACTION]
            if others or len(flats) > 1:
                self.scope.narrow(origins_of(flat, "type"), "numbers with a fraction are not generated")
            else:
                self.scope.leave(origins_of(flat, "type"), "whole numbers cannot be excluded by a mask")
                others = ["number"]
            kept += [put(flat, "type", others)] if others else []
        return kept

    def joined(self, flats: list[Flat]) -> list[Flat]:
        """Merge the branches that consist of listed values only."""
        flats = distinct(flats)
        lists = [flat for flat in flats if flat.keys() == {"enum", AT}]
        if len(lists) < 2:
            return flats
        values = {key_of(value): value for flat in lists for value in flat["enum"]}
        pointers = frozenset(pointer for flat in lists for pointer in origins_of(flat, "enum"))
        first = flats.index(lists[0])
        others = [flat for flat in flats[first:] if flat not in lists]
        return [*flats[:first], {"enum": list(values.values()), AT: {"enum": pointers}}, *others]

    def finished(self, flat: Flat) -> list[Flat]:
        """Rewrite a flat schema by its types, and then its subschemas."""
        if "$ref" in flat:
            rewritten = self.schema(flat)
            return [rewritten] if isinstance(rewritten, dict) else []
        if "enum" in flat:
            values = filter_enum(flat, self.scope)
            singles = [values] if values is not None else []
        else:
            typed = [part for single in self.typed(flat) for part in self.by_type(single)]
            whole = (rewrite_unique(part, self.scope) for part in map(self.children, typed))
            kept = map(drop_dead_properties, (part for part in whole if part.get("contains") is not False))
            singles = [part for part in kept if part is not None]
        if not singles:
            self.scope.unsatisfiable.update(origins(flat))
        return singles

    def typed(self, flat: Flat) -> list[Flat]:
        """Return one flat schema for each type that has keywords, and one for the other types."""
        groups = [group for group, keywords in GROUPS.items() if any(key in flat for key in keywords)]
        kinds: list[str] = flat.get("type", _ALL)
        if ALSO in flat and "string" not in groups:
            groups.append("string")
        if not groups or (len(kinds) == 1 and groups == [_group(kinds[0])]):
            return [flat]
        split = []
        for kind in kinds:
            keep = GROUPS.get(_group(kind), ())
            foreign = [key for keys in GROUPS.values() for key in keys if key in flat and key not in keep]
            self.scope.note(origins_of(flat, *foreign), "it applies to another type")
            split.append(put(without(flat, *foreign, *([] if kind == "string" else [ALSO])), "type", [kind]))
        bare = [single for single in split if single.keys() == {"type", AT}]
        if len(bare) > 1:
            joined = put(bare[0], "type", [single["type"][0] for single in bare])
            kept = [single for single in split if single is bare[0] or single not in bare]
            split = [joined if single is bare[0] else single for single in kept]
        return split

    def by_type(self, flat: Flat) -> list[Flat]:
        kinds = flat.get("type", [])
        if kinds == ["string"]:
            return [rewrite_string(flat, self.scope)]
        if kinds == ["array"]:
            return rewrite_array(flat, self.scope)
        if kinds == ["object"]:
            return rewrite_object(flat, self.scope)
        return [rewrite_number(flat, self.scope)] if set(kinds) <= {"integer", "number"} else [flat]

    def children(self, flat: Flat) -> Flat:
        rewritten = dict(flat)
        if len(flat.get("type", ())) == 1:
            rewritten["type"] = flat["type"][0]
        for keyword in ("properties", "patternProperties"):
            if keyword in flat:
                rewritten[keyword] = {name: self.schema(below) for name, below in flat[keyword].items()}
        for keyword in ("additionalProperties", "items", "contains"):
            if keyword in flat:
                rewritten[keyword] = self.schema(flat[keyword])
        if "propertyNames" in flat:
            names = intersect({"type": ["string"], AT: {}}, flat["propertyNames"])
            rewritten["propertyNames"] = self.schema(names)
        if "prefixItems" in flat:
            rewritten["prefixItems"] = [self.schema(below) for below in flat["prefixItems"]]
        if "enum" in rewritten and "type" in rewritten:
            return without(put(rewritten, "enum", rewritten["enum"], origins_of(rewritten, "type")), "type")
        return rewritten

    def shared(self, schema: Schema) -> Schema:
        """Return a reference to a rewritten schema, or the schema itself if it is short."""
        if isinstance(schema, bool) or (len(schema) <= 2 and "anyOf" not in schema):
            return schema
        key = key_of(schema) + " in its last words"
        if key not in self.names:
            self.names[key] = f"part{len(self.names) + 1}"
            self.defs[self.names[key]] = schema
        return {"$ref": f"#/$defs/{self.names[key]}", AT: {"$ref": origins(schema)}}


def _group(kind: str) -> str:
    return "number" if kind == "integer" else kind


def _refers(schema: Schema) -> bool:
    """Whether the schema, or a schema in it for the same value, is a reference."""
    if isinstance(schema, bool):
        return False
    below = [schema.get(key, True) for key in ("not", "if", "then", "else")]
    below += [branch for key in ("allOf", "anyOf", "oneOf") for branch in schema.get(key, ())]
    below += list(schema.get("dependentSchemas", {}).values())
    return "$ref" in schema or any(map(_refers, below))


_ROOT = "urn:gencli:schema"


def drop_void(schema: Schema) -> Schema:
    """Return the schema without definitions, branches and objects that no value satisfies."""
    while isinstance(schema, dict):
        defs = schema.get("$defs", {})
        # The references to definitions that a finite value satisfies, judged by required parts.
        ending, before = frozenset[str](), None
        while ending != before:
            before = ending
            ending = frozenset(REFERENCE + name for name, below in defs.items() if _ends(below, before))
        void = frozenset(name for name in map(REFERENCE.__add__, defs) if name not in ending)
        if not void:
            return schema
        kept = {name: _cleaned(below, void) for name, below in defs.items() if REFERENCE + name in ending}
        cleaned = _cleaned({key: below for key, below in schema.items() if key != "$defs"}, void)
        schema = {**cleaned, **({"$defs": kept} if kept else {})} if isinstance(cleaned, dict) else cleaned
    return schema


def _ends(schema: Any, ending: frozenset[str]) -> bool:
    """Whether a finite value satisfies the schema, given the satisfiable references `ending`."""
    if not isinstance(schema, dict):
        return schema is not False
    if str(schema.get("$ref", "")).startswith(REFERENCE):
        return schema["$ref"] in ending
    if not all(_ends(below, ending) for below in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(_ends(below, ending) for below in schema["anyOf"]):
        return False
    needed = []
    if schema.get("type") == "object":
        needed = [schema.get("properties", {}).get(name, True) for name in schema.get("required", ())]
    if schema.get("type") == "array":
        heads, least = schema.get("prefixItems", []), schema.get("minItems", 0)
        items = [schema.get("items", True)] * (least > len(heads))
        needed = [*heads[:least], *items, schema.get("contains", True)]
    return all(_ends(below, ending) for below in needed)


def _cleaned(value: Any, void: frozenset[str]) -> Any:
    """Return the value, with False for each reference to a schema that no value satisfies."""
    if isinstance(value, list):
        return [_cleaned(item, void) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("$ref") in void and isinstance(value.get(AT), dict):
        return False
    if "enum" in value:
        return value
    cleaned = {key: below if key == AT else _cleaned(below, void) for key, below in value.items()}
    if AT not in cleaned:
        return cleaned
    if "anyOf" in cleaned:
        branches = [branch for branch in cleaned["anyOf"] if branch is not False]
        return {**cleaned, "anyOf": branches} if branches else False
    if cleaned.get("contains") is False:
        return False
    return drop_dead_properties(cleaned) or False


def filter_enum(flat: Flat, scope: Scope) -> Flat | None:
    """Keep the values of enum that satisfy the other keywords; None if no value is left."""
    others = without(flat, "enum")
    values = flat["enum"]
    pointers = origins_of(flat, "enum")
    if others.keys() != {AT}:
        scope.note(origins(others), "rewritten: the values that it rejects are left out")
        pointers |= origins(others)
        types = frozenset(others.get("type", ()))
        values = [value for value in values if not types or is_of(value, types)]
    if others.keys() - {AT, "type"}:
        registry = Registry().with_resource(_ROOT, DRAFT202012.create_resource(scope.root))
        validator = Draft202012Validator(_absolute(plain(others)), registry=registry)
        values = [value for value in values if validator.is_valid(value)]
    return {"enum": values, AT: {"enum": pointers}} if values else None


def _absolute(value: Any) -> Any:
    """Return the schema with references relative to the whole schema."""
    if isinstance(value, dict):
        copy = {key: _absolute(below) for key, below in value.items()}
        if isinstance(ref := copy.get("$ref"), str):
            copy["$ref"] = f"{_ROOT}#{ref}"
        return copy
    return [_absolute(item) for item in value] if isinstance(value, list) else value
