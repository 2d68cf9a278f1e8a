"""Rewriting of a schema for a back end: the same values, in keywords that the back end enforces.

`alternatives` splits the schema into flat schemas; then each type has its own rewrites. References become
$defs, so that a recursive schema stays finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.errors import GiveUp
from gencli.structured.rewrite.alternatives import alternatives, distinct
from gencli.structured.rewrite.arrays import rewrite_array, rewrite_unique
from gencli.structured.rewrite.intersect import intersect
from gencli.structured.rewrite.marks import branch_orders, settle_marks
from gencli.structured.rewrite.node import (
    ALSO,
    AT,
    FRACTION,
    Flat,
    Schema,
    Scope,
    key_of,
    mark,
    origins,
    put,
    without,
)
from gencli.structured.rewrite.numbers import rewrite_number
from gencli.structured.rewrite.objects import drop_dead_properties, rewrite_object
from gencli.structured.rewrite.prune import drop_void, filter_enum
from gencli.structured.rewrite.strings import rewrite_string
from gencli.structured.schema.groups import GROUPS
from gencli.structured.schema.refs import References

__all__ = ["Rewritten", "rewrite"]

_GROUP_TYPES = {"string": ["string"], "number": ["number"], "array": ["array"], "object": ["object"]}
_ALL = ["null", "boolean", "number", "string", "array", "object"]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A schema with origins, notes on rewritten keywords, and keywords left to the final check.

    The fields are those of Scope, by JSON pointer in the given schema.
    """

    schema: Schema
    notes: dict[str, str]
    left: dict[str, str]
    tight: dict[str, str]
    reachable: set[str]
    unsatisfiable: set[str]
    unbounded: set[str]


def rewrite(
    schema: Any, backend: str, *, extra: bool = False, any_order: bool = False, deadline: Deadline = NEVER
) -> Rewritten:
    """Rewrite a schema for a back end. Raises GiveUp if it is too large or too deep, and OutOfTime."""
    scope = Scope(schema, backend, extra, References(schema), any_order=any_order, deadline=deadline)
    try:
        found = _Rewriter(scope).whole(mark(schema, "", scope))
    except RecursionError:
        raise GiveUp("the schema is too deep") from None
    return Rewritten(
        found, scope.notes, scope.left, scope.tight, scope.reachable, scope.unsatisfiable, scope.unbounded
    )


class _Rewriter:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.names: dict[str, str] = {}  # schema as text -> name in $defs
        self.pending: list[tuple[str, Schema, bool]] = []  # name, schema, whether it is left unchanged
        self.defs: dict[str, Schema] = {}

    def whole(self, schema: Schema) -> Schema:
        found = self.schema(schema)
        while self.pending:
            name, below, is_kept = self.pending.pop()
            self.defs[name] = self.unchanged(below) if is_kept else self.written_out(below)
        if isinstance(found, bool):
            return found
        if self.defs:
            found = {**found, "$defs": self.defs}
            kept = drop_void(found)
            self.scope.unsatisfiable.update(origins(found) - origins(kept))
            found = kept
        return settle_marks(found, self.scope) if isinstance(found, dict) else found

    def schema(self, schema: Schema) -> Schema:
        """Rewrite a subschema; one with references becomes a definition in $defs."""
        if isinstance(schema, bool):
            return {AT: {}} if schema else False  # some back ends reject `true` in some places
        if not _refers(schema):
            return self.written_out(schema)
        return self.named(schema, is_kept=False)

    def named(self, schema: Flat, *, is_kept: bool) -> Flat:
        """Return a reference to the schema, which becomes a definition in $defs."""
        key = key_of(schema) + " as it is" * is_kept
        if key in self.names:
            self.scope.note(origins(schema), "rewritten: merged, as in another place")
        else:
            self.names[key] = f"{_name(schema)}{len(self.names) + 1}"
            self.pending.append((self.names[key], self.followed(schema), is_kept))
        return {"$ref": f"#/$defs/{self.names[key]}", AT: {"$ref": schema[AT].get("$ref", frozenset())}}

    def followed(self, schema: Flat) -> Schema:
        """Return the target of a reference without other keywords."""
        if schema.keys() != {"$ref", AT}:
            return schema
        return self.scope.target(schema["$ref"])

    def written_out(self, schema: Schema) -> Schema:
        if isinstance(schema, bool):
            return schema
        try:
            flats = self.whole_numbers(alternatives(schema, self.scope))
        except GiveUp:
            if self.scope.any_order:
                objects = (place for place in origins(schema) if place.endswith("/properties"))
                self.scope.narrow(objects, "in the schema's order, for it stands as it was given")
            kept: Schema = self.unchanged(schema)
            return kept
        own = frozenset(place for key in ("anyOf", "oneOf") for place in schema[AT].get(key, ()))
        places = own or frozenset(place for each in schema[AT].values() for place in each)
        found = self.joined([one for flat in flats for one in self.finished(flat)])
        found = [one for flat in found for one in branch_orders(flat, self.scope, self.shared)]
        if len(found) == 1:
            self.scope.note(own, "rewritten: one branch is left")
            return found[0]
        return {"anyOf": found, AT: {"anyOf": places}} if found else False

    def unchanged(self, schema: Any) -> Any:
        """Return the schema unchanged, except for the names of references."""
        if isinstance(schema, list):
            return [self.unchanged(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        found = {
            key: below if key in (AT, "enum", "const") else self.unchanged(below)
            for key, below in schema.items()
        }
        if AT in schema and "$ref" in schema:
            alone = {"$ref": schema["$ref"], AT: {"$ref": schema[AT].get("$ref", frozenset())}}
            found["$ref"] = self.named(alone, is_kept=True)["$ref"]
        return found

    def whole_numbers(self, flats: list[Flat]) -> list[Flat]:
        """Remove the type FRACTION: no back end can restrict numbers to non-integers."""
        found = []
        for flat in flats:
            kinds = flat.get("type", ())
            if FRACTION in kinds:
                others = [kind for kind in kinds if kind != FRACTION]
                places = flat[AT].get("type", frozenset())
                if others or len(flats) > 1:
                    self.scope.narrow(places, "numbers with a fraction are not generated")
                    if not others:
                        continue
                else:
                    self.scope.leave(places, "whole numbers cannot be excluded by a mask")
                    others = ["number"]
                flat = put(flat, "type", others)
            found.append(flat)
        return found

    def joined(self, flats: list[Flat]) -> list[Flat]:
        """Merge the branches that consist of listed values only."""
        flats = distinct(flats)
        lists = [flat for flat in flats if flat.keys() == {"enum", AT}]
        if len(lists) < 2:
            return flats
        values = {key_of(value): value for flat in lists for value in flat["enum"]}
        places = frozenset(place for flat in lists for place in flat[AT].get("enum", ()))
        first = flats.index(lists[0])
        rest = [flat for flat in flats[first:] if flat not in lists]
        return [*flats[:first], {"enum": list(values.values()), AT: {"enum": places}}, *rest]

    def finished(self, flat: Flat) -> list[Flat]:
        """Rewrite a flat schema by its types, and then its subschemas."""
        if "$ref" in flat:
            found = self.schema(flat)
            return [found] if isinstance(found, dict) else []
        if "enum" in flat:
            values = filter_enum(flat, self.scope)
            singles = [values] if values is not None else []
        else:
            typed = [one for single in self.typed(flat) for one in self.by_type(single)]
            whole = [rewrite_unique(one, self.scope) for one in map(self.children, typed)]
            whole = [one for one in whole if one.get("contains") is not False]
            singles = [one for one in map(drop_dead_properties, whole) if one is not None]
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
        found = []
        for kind in kinds:
            keep = GROUPS.get(_group(kind), ())
            foreign = [
                key for keywords in GROUPS.values() for key in keywords if key in flat and key not in keep
            ]
            self.scope.note((place for key in foreign for place in flat[AT].get(key, ())), "of another type")
            found.append(put(without(flat, *foreign, *([] if kind == "string" else [ALSO])), "type", [kind]))
        bare = [one for one in found if one.keys() == {"type", AT}]
        if len(bare) > 1:
            rest = put(bare[0], "type", [one["type"][0] for one in bare])
            found = [rest if one is bare[0] else one for one in found if one is bare[0] or one not in bare]
        return found

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
        found = dict(flat)
        if len(flat.get("type", ())) == 1:
            found["type"] = flat["type"][0]
        for keyword in ("properties", "patternProperties"):
            if keyword in flat:
                found[keyword] = {name: self.schema(below) for name, below in flat[keyword].items()}
        for keyword in ("additionalProperties", "items", "contains"):
            if keyword in flat:
                found[keyword] = self.schema(flat[keyword])
        if "propertyNames" in flat:
            found["propertyNames"] = self.schema(
                intersect({"type": ["string"], AT: {}}, flat["propertyNames"])
            )
        if "prefixItems" in flat:
            found["prefixItems"] = [self.schema(below) for below in flat["prefixItems"]]
        if "enum" in found and "type" in found:
            return without(put(found, "enum", found["enum"], found[AT].get("type", ())), "type")
        return found

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


def _name(schema: Flat) -> str:
    last = str(schema.get("$ref", "")).rpartition("/")[2]
    return "".join(sign for sign in last if sign.isascii() and sign.isalnum()) or "schema"
