"""A schema as flat schemas, one of which has to hold: allOf merged, anyOf expanded, not and if resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from gencli.structured.errors import GiveUp
from gencli.structured.rewrite.intersect import intersect_flat, is_empty
from gencli.structured.rewrite.modernize import modernize
from gencli.structured.rewrite.negate import negate
from gencli.structured.rewrite.node import AT, Flat, Schema, Scope, key_of, origins, without
from gencli.structured.schema.groups import APPLICATORS

__all__ = ["alternatives", "distinct"]


class _TooMany(GiveUp):
    """A schema would become too many flat schemas."""


_LIMIT = 48  # flat schemas of one schema
_DEPENDENT = ("dependentRequired", "dependentSchemas")
_HARD = ("not", "if", "oneOf", *_DEPENDENT, "$dynamicRef", "$recursiveRef")
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_APART = frozenset((*APPLICATORS, *_DEPENDENT, *_UNEVALUATED))


def alternatives(
    schema: Schema, scope: Scope, *, strict: bool = False, path: tuple[str, ...] = ()
) -> list[Flat]:
    """Return flat schemas, one of which has to hold; [] if no value satisfies the schema.

    Keywords that a mask cannot enforce are left to the final check and noted in the scope. With `strict`, or
    if the result would be too large, GiveUp is raised instead. A reference without other keywords stays
    {"$ref": pointer}.
    """
    if isinstance(schema, bool):
        return [{AT: {}}] if schema else []
    scope.spend()
    node = modernize(schema, scope)
    asserting = [key for key in node if key != AT]
    if asserting == ["$ref"] and not strict:
        return [node]
    spread = _Spread(scope, strict, path)
    parts: list[list[Flat]] = []
    is_own_done = False
    for keyword in asserting:
        if keyword not in _APART and not is_own_done:
            is_own_done = True
            own = without(node, *_APART)
            parts.append([own])
            if is_empty(own):
                scope.unsatisfiable.update(place for places in own[AT].values() for place in places)
                return []
        elif keyword in _APART - set(_UNEVALUATED) - {"then", "else"}:
            parts.extend(spread.keyword(node, keyword))
    return spread.unevaluated(node, spread.product(parts))


class _Spread:
    """The keywords whose subschemas apply to the same value, one method each."""

    def __init__(self, scope: Scope, strict: bool, path: tuple[str, ...]) -> None:
        self.scope = scope
        self.strict = strict
        self.path = path

    def keyword(self, node: Flat, keyword: str) -> list[list[Flat]]:
        places = [
            place
            for key in (keyword, "then", "else")
            if keyword in (key, "if")
            for place in node[AT].get(key, ())
        ]
        try:
            found = self._spell(node, keyword)
        except _TooMany:
            raise
        except GiveUp as error:
            if self.strict or keyword not in _HARD:
                raise
            if keyword != "oneOf":  # the branches of oneOf are enforced like those of anyOf
                both = ("if", "then", "else") if keyword == "if" else (keyword,)
                places += [place for key in both for place in origins(_schemas(node.get(key)))]
            self.scope.leave(places, f"{error} cannot be said in a mask")
            return self._approximation(node, keyword)
        self.scope.note(places, _NOTES.get(keyword, "rewritten: spelled out"))
        return found

    def _spell(self, node: Flat, keyword: str) -> list[list[Flat]]:
        value = node[keyword]
        if keyword == "$ref":
            return [self.target(value)]
        if keyword == "allOf":
            return [self.below(branch) for branch in value]
        if keyword == "anyOf":
            return [distinct([flat for branch in value for flat in self.below(branch)])]
        if keyword == "oneOf":
            return [self.one_of(value)]
        if keyword == "not":
            return [self.negation(value)]
        if keyword == "if":
            return [self.condition(value, node.get("then", True), node.get("else", True))]
        if keyword == "dependentRequired":
            return [self.dependent(name, {"required": [name, *more]}, node) for name, more in value.items()]
        if keyword == "dependentSchemas":
            wanted = {
                name: {"allOf": [{"required": [name], AT: {}}, below], AT: {}}
                for name, below in value.items()
            }
            return [self.dependent(name, below, node) for name, below in wanted.items()]
        raise GiveUp(keyword)

    def _approximation(self, node: Flat, keyword: str) -> list[list[Flat]]:
        """Return the enforceable part of a keyword that is left to the final check."""
        if keyword != "oneOf":
            return []
        return [distinct([flat for branch in node["oneOf"] for flat in self.below(branch)])]

    def below(self, schema: Schema, *, strict: bool | None = None) -> list[Flat]:
        return alternatives(
            schema, self.scope, strict=self.strict if strict is None else strict, path=self.path
        )

    def target(self, pointer: str) -> list[Flat]:
        if pointer in self.path:
            raise GiveUp("a reference in a circle")
        return alternatives(
            self.scope.target(pointer), self.scope, strict=self.strict, path=(*self.path, pointer)
        )

    def product(self, parts: list[list[Flat]]) -> list[Flat]:
        """Return the flat schemas of one alternative from each part, combined in all ways."""
        found: list[Flat] = [{AT: {}}]
        for part in self.paired(parts):
            if len(found) * len(part) > _LIMIT * 4:
                raise GiveUp("too many combinations")
            pairs = [(a, b) for a in found for b in part]
            found = distinct([flat for pair in pairs for flat in self.meets(*pair)])
        if len(found) > _LIMIT:
            raise GiveUp("too many combinations")
        return found

    def paired(self, parts: list[list[Flat]]) -> Iterator[list[Flat]]:
        """Yield the parts; single flat schemas are merged pairwise, as one by one takes quadratic time."""
        for is_single, group in groupby(parts, key=lambda part: len(part) == 1):
            run = list(group)
            while is_single and len(run) > 1:
                last = run[-1:] if len(run) % 2 else []
                run = [self.meets(*a, *b) for a, b in zip(run[::2], run[1::2], strict=False)] + last
                is_single = all(len(part) == 1 for part in run)
            yield from run

    def meets(self, a: Flat, b: Flat) -> list[Flat]:
        """Return the intersection of two flat schemas; references next to other keywords are followed."""
        self.scope.spend()
        if len(a) == 1 or len(b) == 1:
            return [b if len(a) == 1 else a]
        if "$ref" in a or "$ref" in b:
            places = (place for one in (a, b) for place in one[AT].get("$ref", ()))
            self.scope.note(places, "rewritten: merged with what stands beside it")
            firsts = self.target(a["$ref"]) if "$ref" in a else [a]
            seconds = self.target(b["$ref"]) if "$ref" in b else [b]
            return [flat for first in firsts for second in seconds for flat in self.meets(first, second)]
        met = intersect_flat(a, b)
        if met is None or self._has_no_value(met):
            for one in (a, b):
                self.scope.unsatisfiable.update(place for places in one[AT].values() for place in places)
            return []
        return [met]

    def _has_no_value(self, flat: Flat) -> bool:
        """Whether a required property allows no value."""
        if len(self.path) > 8 or flat.get("type") != ["object"]:
            return False
        below = [
            flat["properties"][name]
            for name in flat.get("required", ())
            if name in flat.get("properties", {})
        ]
        return any(
            isinstance(schema, dict) and "allOf" in schema and self._is_void(schema) for schema in below
        )

    def _is_void(self, schema: Schema) -> bool:
        try:
            return not alternatives(schema, self.scope, strict=True, path=(*self.path, "value"))
        except GiveUp:
            return False

    def one_of(self, branches: list[Schema]) -> list[Flat]:
        """Return the branches, each without the values that other branches allow."""
        if len(branches) > _LIMIT:
            raise _TooMany("too many branches")
        exact = [self.below(branch, strict=True) for branch in branches]
        found: list[Flat] = []
        for index, branch in enumerate(branches):
            flats = self.below(branch)
            rivals = [flat for other, there in enumerate(exact) if other != index for flat in there]
            rivals = [rival for rival in rivals if any(self.meets(flat, rival) for flat in flats)]
            found.extend(self.product([flats, *(negate(rival) for rival in rivals)]))
        return distinct(found)

    def negation(self, schema: Schema) -> list[Flat]:
        return self.product([negate(flat) for flat in self.below(schema, strict=True)])

    def condition(self, test: Schema, then: Schema, other: Schema) -> list[Flat]:
        holds = self.product([self.below(test, strict=True), self.below(then)])
        return distinct([*holds, *self.product([self.negation(test), self.below(other)])])

    def dependent(self, name: str, wanted: dict[str, Any], node: Flat) -> list[Flat]:
        """Return two cases: the property is absent, or its dependent schema holds."""
        places = frozenset(place for key in _DEPENDENT for place in node[AT].get(key, ()))
        absent: Flat = {"properties": {name: False}, AT: {"properties": places}}
        return [absent, *self.below({AT: {}, **wanted})]

    def unevaluated(self, node: Flat, flats: list[Flat]) -> list[Flat]:
        """Add unevaluatedProperties and unevaluatedItems, if the evaluated parts are known."""
        for keyword, plain in zip(_UNEVALUATED, ("additionalProperties", "items"), strict=True):
            if keyword not in node:
                continue
            places = node[AT].get(keyword, frozenset())
            if any(key in node for key in ("not", "if", "contains", "dependentSchemas", "$dynamicRef")):
                if self.strict:
                    raise GiveUp(keyword)
                below = origins(node[keyword])
                self.scope.leave((*places, *below), "what was evaluated cannot be said in a mask")
                continue
            self.scope.note(places, f"rewritten: {plain}")
            flats = [
                flat if plain in flat else {**flat, plain: node[keyword], AT: {**flat[AT], plain: places}}
                for flat in self._followed(flats)
            ]
        return flats

    def _followed(self, flats: Iterable[Flat]) -> list[Flat]:
        return [one for flat in flats for one in (self.target(flat["$ref"]) if "$ref" in flat else [flat])]


def _schemas(value: Any) -> Any:
    """Return the value of a keyword, with a map of schemas as a list."""
    return list(value.values()) if isinstance(value, dict) and AT not in value else value


def distinct(flats: list[Flat]) -> list[Flat]:
    """Return each flat schema once, with the origins of all its copies."""
    if len(flats) < 2:
        return flats
    found: dict[str, Flat] = {}
    for flat in flats:
        key = key_of(flat)
        if key in found:
            at, more = found[key][AT], flat[AT]
            joined = {
                name: at.get(name, frozenset()) | more.get(name, frozenset()) for name in {**at, **more}
            }
            found[key] = {**found[key], AT: joined}
        else:
            found[key] = flat
    return list(found.values())


_NOTES = {
    "$ref": "rewritten: merged with what stands beside it",
    "allOf": "rewritten: merged",
    "anyOf": "rewritten: spread over what stands beside it",
    "oneOf": "rewritten: anyOf of branches that exclude each other",
}
