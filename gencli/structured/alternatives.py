"""A schema as flat schemas, one of which has to hold: allOf merged, anyOf expanded, not and if resolved,
complements, keywords of older drafts converted to 2020-12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import Any

from gencli.structured.audit import is_of
from gencli.structured.flat_schema import (
    ALSO,
    AT,
    FRACTION,
    Flat,
    Schema,
    Scope,
    intersect_flat,
    is_empty,
    joined_origins,
    key_of,
    origins,
    origins_of,
    put,
    without,
)
from gencli.structured.json_schema import APPLICATORS
from gencli.structured.pattern_sets import complement, texts_without
from gencli.structured.schema_errors import GiveUp

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
    has_plain = False
    for keyword in asserting:
        if keyword not in _APART and not has_plain:
            has_plain = True
            plain = without(node, *_APART)
            parts.append([plain])
            if is_empty(plain):
                scope.unsatisfiable.update(*plain[AT].values())
                return []
        elif keyword in _APART - set(_UNEVALUATED) - {"then", "else"}:
            parts.extend(spread.keyword(node, keyword))
    return spread.unevaluated(node, spread.product(parts))


class _TooMany(GiveUp):
    """A schema would become too many flat schemas."""


class _Spread:
    """The keywords whose subschemas apply to the same value, one method each."""

    def __init__(self, scope: Scope, strict: bool, path: tuple[str, ...]) -> None:
        self.scope = scope
        self.strict = strict
        self.path = path

    def keyword(self, node: Flat, keyword: str) -> list[list[Flat]]:
        keys = ("if", "then", "else") if keyword == "if" else (keyword,)
        pointers = origins_of(node, *keys)
        try:
            parts = self._spell(node, keyword)
        except _TooMany:
            raise
        except GiveUp as error:
            if self.strict or keyword not in _HARD:
                raise
            if keyword != "oneOf":  # the branches of oneOf are enforced like those of anyOf
                pointers |= origins([node.get(key) for key in keys])
            self.scope.leave(pointers, f"a mask cannot express {error}")
            # The enforceable part of a keyword that is left to the final check.
            return [self._any_of(node["oneOf"])] if keyword == "oneOf" else []
        self.scope.note(pointers, _NOTES.get(keyword, "rewritten: spelled out"))
        return parts

    def _spell(self, node: Flat, keyword: str) -> list[list[Flat]]:
        value = node[keyword]
        if keyword == "$ref":
            return [self.target(value)]
        if keyword == "allOf":
            return [self.below(branch) for branch in value]
        if keyword == "anyOf":
            return [self._any_of(value)]
        if keyword == "oneOf":
            return [self.one_of(value)]
        if keyword == "not":
            return [self.negation(value)]
        if keyword == "if":
            return [self.condition(value, node.get("then", True), node.get("else", True))]
        if keyword == "dependentRequired":
            return [self.dependent(name, {"required": [name, *more]}, node) for name, more in value.items()]
        if keyword == "dependentSchemas":
            needed = {name: {"required": [name], AT: {}} for name in value}
            return [self.dependent(name, {"allOf": [needed[name], value[name]]}, node) for name in value]
        raise GiveUp(keyword)

    def _any_of(self, branches: list[Schema]) -> list[Flat]:
        return distinct([flat for branch in branches for flat in self.below(branch)])

    def below(self, schema: Schema, *, strict: bool | None = None) -> list[Flat]:
        is_strict = self.strict if strict is None else strict
        return alternatives(schema, self.scope, strict=is_strict, path=self.path)

    def target(self, pointer: str) -> list[Flat]:
        if pointer in self.path:
            raise GiveUp("a reference in a circle")
        below = self.scope.target(pointer)
        return alternatives(below, self.scope, strict=self.strict, path=(*self.path, pointer))

    def product(self, parts: list[list[Flat]]) -> list[Flat]:
        """Return the flat schemas of one alternative from each part, combined in all ways."""
        flats: list[Flat] = [{AT: {}}]
        for part in self.paired(parts):
            if len(flats) * len(part) > _LIMIT * 4:
                raise GiveUp("too many combinations")
            pairs = [(a, b) for a in flats for b in part]
            flats = distinct([flat for pair in pairs for flat in self.meets(*pair)])
        if len(flats) > _LIMIT:
            raise GiveUp("too many combinations")
        return flats

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
            pointers = (pointer for flat in (a, b) for pointer in origins_of(flat, "$ref"))
            self.scope.note(pointers, "rewritten: merged with the keywords beside it")
            firsts = self.target(a["$ref"]) if "$ref" in a else [a]
            seconds = self.target(b["$ref"]) if "$ref" in b else [b]
            return [flat for first in firsts for second in seconds for flat in self.meets(first, second)]
        met = intersect_flat(a, b)
        if met is None or self._has_no_value(met):
            self.scope.unsatisfiable.update(*a[AT].values(), *b[AT].values())
            return []
        return [met]

    def _has_no_value(self, flat: Flat) -> bool:
        """Whether a required property allows no value."""
        if len(self.path) > 8 or flat.get("type") != ["object"]:
            return False
        below = (flat.get("properties", {}).get(name) for name in flat.get("required", ()))
        for schema in below:
            if isinstance(schema, dict) and "allOf" in schema:
                with suppress(GiveUp):
                    if not alternatives(schema, self.scope, strict=True, path=(*self.path, "value")):
                        return True
        return False

    def one_of(self, branches: list[Schema]) -> list[Flat]:
        """Return the branches, each without the values that other branches allow."""
        if len(branches) > _LIMIT:
            raise _TooMany("too many branches")
        exact = [self.below(branch, strict=True) for branch in branches]
        exclusive: list[Flat] = []
        for index, branch in enumerate(branches):
            flats = self.below(branch)
            rivals = [flat for other, there in enumerate(exact) if other != index for flat in there]
            rivals = [rival for rival in rivals if any(self.meets(flat, rival) for flat in flats)]
            exclusive.extend(self.product([flats, *(negate(rival) for rival in rivals)]))
        return distinct(exclusive)

    def negation(self, schema: Schema) -> list[Flat]:
        return self.product([negate(flat) for flat in self.below(schema, strict=True)])

    def condition(self, test: Schema, then: Schema, other: Schema) -> list[Flat]:
        holds = self.product([self.below(test, strict=True), self.below(then)])
        return distinct([*holds, *self.product([self.negation(test), self.below(other)])])

    def dependent(self, name: str, wanted: dict[str, Any], node: Flat) -> list[Flat]:
        """Return two cases: the property is absent, or its dependent schema holds."""
        pointers = origins_of(node, *_DEPENDENT)
        absent: Flat = {"properties": {name: False}, AT: {"properties": pointers}}
        return [absent, *self.below({AT: {}, **wanted})]

    def unevaluated(self, node: Flat, flats: list[Flat]) -> list[Flat]:
        """Add unevaluatedProperties and unevaluatedItems, if the evaluated parts are known."""
        for keyword, plain in zip(_UNEVALUATED, ("additionalProperties", "items"), strict=True):
            if keyword not in node:
                continue
            pointers = origins_of(node, keyword)
            if any(key in node for key in ("not", "if", "contains", "dependentSchemas", "$dynamicRef")):
                if self.strict:
                    raise GiveUp(keyword)
                below = origins(node[keyword])
                self.scope.leave((*pointers, *below), "a mask cannot express which parts were evaluated")
                continue
            self.scope.note(pointers, f"rewritten: {plain}")
            flats = [
                flat if plain in flat else {**flat, plain: node[keyword], AT: {**flat[AT], plain: pointers}}
                for ref in flats
                for flat in (self.target(ref["$ref"]) if "$ref" in ref else [ref])
            ]
        return flats


def distinct(flats: list[Flat]) -> list[Flat]:
    """Return each flat schema once, with the origins of all its copies."""
    kept: dict[str, Flat] = {}
    for flat in flats if len(flats) > 1 else ():
        key = key_of(flat)
        kept[key] = {**kept[key], AT: joined_origins(kept[key], flat)} if key in kept else flat
    return list(kept.values()) or flats


_NOTES = {
    "$ref": "rewritten: merged with the keywords beside it",
    "allOf": "rewritten: merged",
    "anyOf": "rewritten: combined with the keywords beside it",
    "oneOf": "rewritten: anyOf of branches that exclude each other",
}


def negate(flat: Flat) -> list[Flat]:
    """Return flat schemas, one of which holds for each value that the given schema rejects.

    Raises GiveUp if JSON Schema cannot express the complement in keywords that a mask enforces.
    """
    if ALSO in flat:
        raise GiveUp("the complement of two patterns")
    complements: list[Flat] = []
    for keyword, value in flat.items():
        if keyword == AT:
            continue
        if keyword not in _RULES:
            raise GiveUp(f"the complement of {keyword}")
        pointers = flat.get(AT, {}).get(keyword, frozenset())
        for other in _RULES[keyword](value, flat):
            complements.append({**other, AT: {**dict.fromkeys(other, pointers), **other.get(AT, {})}})
    return complements


_MANY = 200
_NUMBERS = ("integer", FRACTION)
_Rule = Callable[[Any, Flat], Iterable[Flat]]
_COMPLEMENT = ("null", "boolean", *_NUMBERS, "string", "array", "object")


def _type(value: list[str], flat: Flat) -> Iterator[Flat]:
    refused = {*value, *(_NUMBERS if "number" in value else ())}
    if left := [kind for kind in _COMPLEMENT if kind not in refused]:
        yield {"type": left}


def _enum(values: list[Any], flat: Flat) -> Iterator[Flat]:
    if any(isinstance(value, list | dict) for value in values):
        raise GiveUp("the complement of a list or an object")
    if len(values) > _MANY:
        raise GiveUp(f"the complement of more than {_MANY} values")
    texts = [value for value in values if isinstance(value, str)]
    numbers = sorted({value for value in values if is_of(value, frozenset(["number"]))})
    flags = [flag for flag in (True, False) if not any(flag is value for value in values)]
    kinds = ("null", "boolean", "number", "string", "array", "object")
    if whole := [kind for kind in kinds if not any(is_of(value, frozenset([kind])) for value in values)]:
        yield {"type": whole}
    if len(flags) == 1:
        yield {"enum": flags}
    if texts:
        yield {"type": ["string"], "pattern": texts_without(texts)}
    for low, high in zip([None, *numbers], [*numbers, None], strict=True) if numbers else ():
        bounds = {"exclusiveMinimum": low, "exclusiveMaximum": high}
        yield {"type": ["number"], **{key: bound for key, bound in bounds.items() if bound is not None}}


def _opposite(kind: str, keyword: str, step: int = 0) -> _Rule:
    def rule(value: Any, flat: Flat) -> Iterator[Flat]:
        if not step:
            yield {"type": [kind], keyword: value}
        elif value + step >= 0:
            yield {"type": [kind], keyword: value + step}

    return rule


def _properties(properties: dict[str, Any], flat: Flat) -> Iterator[Flat]:
    for name, below in properties.items():
        if below is not True:
            yield {"type": ["object"], "required": [name], "properties": {name: _refusing(below)}}


def _items(below: Any, flat: Flat) -> Iterator[Flat]:
    heads = flat.get("prefixItems", [])
    if below is False:
        yield {"type": ["array"], "minItems": len(heads) + 1}
    elif heads:
        raise GiveUp("the complement of items behind others")
    elif below is not True:
        yield {"type": ["array"], "contains": _refusing(below)}


def _prefix_items(heads: list[Any], flat: Flat) -> Iterator[Flat]:
    for index, below in enumerate(heads):
        if below is not True:
            items = [*[True] * index, _refusing(below)]
            yield {"type": ["array"], "minItems": index + 1, "prefixItems": items}


def _refusing(schema: Schema) -> Schema:
    return {"not": schema, AT: {"not": origins(schema)}} if schema is not False else True


_RULES: dict[str, _Rule] = {
    "type": _type,
    "enum": _enum,
    "minimum": _opposite("number", "exclusiveMaximum"),
    "maximum": _opposite("number", "exclusiveMinimum"),
    "exclusiveMinimum": _opposite("number", "maximum"),
    "exclusiveMaximum": _opposite("number", "minimum"),
    "minLength": _opposite("string", "maxLength", -1),
    "maxLength": _opposite("string", "minLength", 1),
    "pattern": lambda text, flat: [{"type": ["string"], "pattern": complement(text)}],
    "minItems": _opposite("array", "maxItems", -1),
    "maxItems": _opposite("array", "minItems", 1),
    "minProperties": _opposite("object", "maxProperties", -1),
    "maxProperties": _opposite("object", "minProperties", 1),
    "required": lambda names, flat: [{"type": ["object"], "properties": {name: False}} for name in names],
    "properties": _properties,
    "items": _items,
    "contains": lambda below, flat: [
        {"type": ["array"], "items": {"not": below, AT: {"not": origins(below)}}}
    ],
    "prefixItems": _prefix_items,
}

_COUNTS = "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains".split()


def modernize(node: Flat, scope: Scope) -> Flat:
    """Return the equivalent schema in keywords of 2020-12, with `const` as `enum` and `type` as a list."""
    if isinstance(node.get("type"), str):
        node = put(node, "type", [node["type"]])
    if "const" in node and "enum" not in node:
        node = without(put(node, "enum", [node["const"]], node[AT]["const"]), "const")
    node = _old_items(_dependencies(_exclusive(node), scope), scope)
    for keyword in _COUNTS:
        if isinstance(node.get(keyword), float):
            node = put(node, keyword, int(node[keyword]))
    for keyword, empty in (("uniqueItems", False), ("required", []), ("minLength", 0), ("minItems", 0)):
        if keyword in node and node[keyword] == empty:
            node = _drop(node, keyword, scope)
    companions = {"minContains": "contains", "maxContains": "contains", "then": "if", "else": "if"}
    for keyword, companion in companions.items():
        if keyword in node and companion not in node:
            node = _drop(node, keyword, scope)
    return node


def _drop(node: Flat, keyword: str, scope: Scope) -> Flat:
    scope.note(origins_of(node, keyword), "has no effect here")
    return without(node, keyword)


def _exclusive(node: Flat) -> Flat:
    for keyword, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(flag := node.get(keyword), bool):
            pointers = origins_of(node, keyword, plain)
            kept, gone = (keyword, plain) if flag and plain in node else (plain, keyword)
            node = without(put(node, kept, node[plain], pointers) if plain in node else node, gone)
    return node


def _dependencies(node: Flat, scope: Scope) -> Flat:
    if "dependencies" not in node:
        return node
    pointers = node[AT]["dependencies"]
    names = {name: below for name, below in node["dependencies"].items() if isinstance(below, list)}
    schemas = {name: below for name, below in node["dependencies"].items() if not isinstance(below, list)}
    scope.note(pointers, "rewritten: dependentRequired and dependentSchemas")
    node = without(node, "dependencies")
    node = put(node, "dependentRequired", names, pointers) if names else node
    return put(node, "dependentSchemas", schemas, pointers) if schemas else node


def _old_items(node: Flat, scope: Scope) -> Flat:
    if isinstance(node.get("items"), list):
        pointers, additional = node[AT]["items"], node.get("additionalItems")
        more = origins_of(node, "additionalItems")
        scope.note(pointers, "rewritten: prefixItems")
        node = put(without(node, "items", "additionalItems"), "prefixItems", node["items"], pointers)
        return node if additional is None else put(node, "items", additional, more)
    return _drop(node, "additionalItems", scope) if "additionalItems" in node else node
