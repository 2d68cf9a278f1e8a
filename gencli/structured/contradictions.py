"""Contradictions: schemas that no value satisfies, as far as they are found without a search."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

from gencli.structured.ecma_regex import MAX_SEARCHES, may_match
from gencli.structured.json_schema import References, draft_of, find_loop, pointers_in
from gencli.structured.schema_errors import NEVER, Deadline, child, shortened
from gencli.structured.schema_validator import canonical, exact

_MAX_CHAIN = 30  # references and allOf followed to find the types of a value

_Fault = tuple[str, str]  # JSON pointer or, of one schema, keyword; fault
_Faults = tuple[_Fault, ...]
_Below = Callable[[str, dict[str, Any]], Iterable[str]]  # subschemas of a pointer and its schema


def find_contradictions(root: Any, limit: int, deadline: Deadline = NEVER) -> tuple[_Faults, _Faults]:
    """Return at most `limit` fatal contradictions, and as many optional ones if there are no fatal ones.

    Fatal ones are at places that every value has to satisfy; optional ones in parts that a value need not
    have, such as a property that is not required. The references of the schema have to be valid. Subschemas
    of `not` and of conditions are not searched, nor are alternatives while another one is possible.
    """
    search = _ContradictionSearch(root, deadline)
    fatal = tuple(islice(search.fatal(), limit))
    return fatal, () if fatal else tuple(islice(search.optional(), limit))


class _ContradictionSearch:
    def __init__(self, root: Any, deadline: Deadline) -> None:
        self._root, self._deadline = root, deadline
        self._references, self._draft = References(root), draft_of(root)
        self._types: dict[str, frozenset[str]] = {}
        self._seen: set[str] = set()

    def fatal(self) -> Iterator[_Fault]:
        if is_nothing(self._root):
            yield "", "this schema is false: nothing satisfies it"
        yield from self._faults([""], self._needed)
        yield from self._loops([""])

    def optional(self) -> Iterator[_Fault]:
        """Yield optional contradictions; call after `fatal` is exhausted."""
        yield from self._faults(list(self._seen), lambda *here: (*self._needed(*here), *self._other(*here)))
        yield from self._loops(sorted(self._seen))

    def _loops(self, starts: list[str]) -> Iterator[_Fault]:
        if (loop := find_loop(starts, self._musts)) is not None:
            yield loop, "a value would have to contain itself, so it would never end"

    def _faults(self, starts: list[str], below: _Below) -> Iterator[_Fault]:
        """Yield the faults of the places that `below` leads to; known places are only traversed."""
        stack, done = starts, set[str]()
        while stack:
            pointer = stack.pop()
            schema = self._at(pointer)
            if pointer not in done and isinstance(schema, dict):
                done.add(pointer)
                if pointer not in self._seen:
                    self._seen.add(pointer)
                    yield from self._local(pointer, schema)
                stack.extend(reversed(list(below(pointer, schema))))

    def _at(self, pointer: str) -> Any:
        """Return the schema at a pointer, reduced to the keywords that its draft uses."""
        self._deadline.check()
        schema = self._references.at(pointer)
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema and self._draft.ignores_siblings:
            return {"$ref": schema["$ref"]}
        return {key: value for key, value in schema.items() if key in self._draft.judged()}

    def _local(self, pointer: str, schema: dict[str, Any]) -> Iterator[_Fault]:
        for rule in RULES:
            yield from ((child(pointer, keyword), text) for keyword, text in rule(schema))
        parts = self._type_parts(pointer, schema, 0)
        if all(parts) and not frozenset.intersection(*parts):
            at = next((key for key in ("allOf", "$ref", "enum", "const") if key in schema), "type")
            yield child(pointer, at), "no value has all the types that are asked for"
        for keyword in ("anyOf", "oneOf"):
            pointers = pointers_in(pointer, schema, keyword)
            if pointers and all(self._is_impossible(below) for below in pointers):
                yield child(pointer, keyword), "none of the alternatives can be satisfied"

    def _is_impossible(self, pointer: str) -> bool:
        schema = self._at(pointer)
        if not isinstance(schema, dict) or is_nothing(schema):
            return is_nothing(schema)
        return any(True for rule in RULES for _ in rule(schema)) or not self._types_of(pointer, 0)

    def _needed(self, pointer: str, schema: dict[str, Any]) -> Iterator[str]:
        """Yield the subschemas for the same value, and for required parts of it."""
        yield from self._references.conjuncts(pointer, schema)
        for keyword in ("anyOf", "oneOf"):
            possible = self._possible(pointer, schema, keyword)
            yield from possible if len(possible) == 1 else ()
        required = set() if isinstance(schema.get("required"), bool) else set(schema.get("required", ()))
        needed = (key for key in schema.get("properties", ()) if key in required)
        yield from (child(pointer, "properties", key) for key in needed)
        heads = next((key for key in ("prefixItems", "items") if isinstance(schema.get(key), list)), "")
        least, num_heads = schema.get("minItems", 0), len(schema[heads]) if heads else 0
        yield from (child(pointer, heads, n) for n in range(min(int(least), num_heads)))
        if least > num_heads and isinstance(schema.get("items"), dict):
            yield child(pointer, "items")
        if isinstance(schema.get("contains"), dict) and schema.get("minContains", 1) > 0:
            yield child(pointer, "contains")

    def _other(self, pointer: str, schema: dict[str, Any]) -> Iterator[str]:
        """Yield the subschemas of alternatives, and of optional parts of a value."""
        for keyword in ("anyOf", "oneOf"):
            yield from self._possible(pointer, schema, keyword)
        for keyword in ("prefixItems", "items"):
            if isinstance(schema.get(keyword), list):
                yield from pointers_in(pointer, schema, keyword)
        for keyword in ("properties", "patternProperties"):
            yield from (child(pointer, keyword, key) for key in schema.get(keyword, ()))
        for keyword in ("items", "additionalProperties", "contains", "propertyNames"):
            if isinstance(schema.get(keyword), dict):
                yield child(pointer, keyword)

    def _possible(self, pointer: str, schema: dict[str, Any], keyword: str) -> list[str]:
        return [below for below in pointers_in(pointer, schema, keyword) if not self._is_impossible(below)]

    def _musts(self, pointer: str) -> Iterator[str]:
        """Yield the subschemas for the same value, and for parts that every value has."""
        schema = self._at(pointer)
        if not isinstance(schema, dict):
            return
        yield from self._references.conjuncts(pointer, schema)
        if schema.get("type") == "object":
            needed = set(schema.get("required", ())) & set(schema.get("properties", ()))
            yield from (child(pointer, "properties", key) for key in sorted(needed))
        needs_more = schema.get("minItems", 0) > len(schema.get("prefixItems", ()))
        if schema.get("type") == "array" and needs_more and isinstance(schema.get("items"), dict):
            yield child(pointer, "items")

    def _types_of(self, pointer: str, depth: int) -> frozenset[str]:
        """Return the types that a value may have; integers count as numbers."""
        if pointer not in self._types:
            schema = self._at(pointer)
            if not isinstance(schema, dict) or depth > _MAX_CHAIN:
                return frozenset() if schema is False else TYPES
            parts = self._type_parts(pointer, schema, depth + 1)
            self._types[pointer] = frozenset.intersection(*parts)
        return self._types[pointer]

    def _type_parts(self, pointer: str, schema: dict[str, Any], depth: int) -> list[frozenset[str]]:
        targets = self._references.conjuncts(pointer, schema)
        return [*own_types(schema), *(self._types_of(target, depth) for target in targets)]


TYPES = frozenset(("array", "boolean", "number", "null", "object", "string"))
_PAIRS = (
    ("minLength", "maxLength", "string"),
    ("minItems", "maxItems", "array"),
    ("minContains", "maxContains", "array"),
    ("minProperties", "maxProperties", "object"),
)


def is_nothing(schema: Any) -> bool:
    return schema is False or (isinstance(schema, dict) and schema.get("not", False) in ({}, True))


def own_types(schema: dict[str, Any]) -> list[frozenset[str]]:
    """Return the types that `type`, `const` and `enum` each allow; integers count as numbers."""
    named = schema.get("type", list(TYPES))
    names = [named] if isinstance(named, str) else named
    types = [frozenset("number" if name == "integer" else name for name in names)]
    listed = [schema["const"]] if "const" in schema else None, schema.get("enum")
    return types + [frozenset(map(_type_of, values)) for values in listed if values is not None]


def _allows(kind: str, schema: dict[str, Any]) -> bool:
    return all(kind in types for types in own_types(schema))


def _type_of(value: Any) -> str:
    kinds = ((bool, "boolean"), (str, "string"), (list, "array"), (dict, "object"), (type(None), "null"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "number")


def _no_choice(schema: dict[str, Any]) -> Iterator[_Fault]:
    for keyword in ("enum", "type"):
        if schema.get(keyword) == []:
            yield keyword, "the list is empty, so nothing is in it"
    values = set(map(canonical, schema.get("enum", ())))
    if "const" in schema and values and canonical(schema["const"]) not in values:
        yield "const", f"{shortened(schema['const'])} is not in enum"


def _pairs(schema: dict[str, Any]) -> Iterator[_Fault]:
    for low, high, kind in _PAIRS:
        if low in schema and high in schema and schema[low] > schema[high] and _allows(kind, schema):
            yield low, f"{schema[low]} is above {high}, which is {schema[high]}"


def _range(schema: dict[str, Any]) -> Iterator[_Fault]:
    low, high = _bound(schema, "Minimum", max), _bound(schema, "Maximum", min)
    if low is None or high is None or not _allows("number", schema):
        return
    (lowest, is_above, keyword), (highest, is_below, other) = low, high
    if lowest > highest or (lowest == highest and (is_above or is_below)):
        yield keyword, f"{schema[keyword]} leaves no number up to {other}, which is {schema[other]}"
        return
    step = exact(schema["multipleOf"]) if "multipleOf" in schema else Fraction(1)
    if "multipleOf" not in schema and schema.get("type") != "integer":
        return
    first = math.floor(lowest / step) + 1 if is_above else math.ceil(lowest / step)
    last = math.ceil(highest / step) - 1 if is_below else math.floor(highest / step)
    if first > last:
        kind = "multiple" if "multipleOf" in schema else "whole number"
        yield keyword, f"no {kind} lies between {schema[keyword]} and {schema[other]}"


def _bound(
    schema: dict[str, Any], name: str, tightest: Callable[..., Any]
) -> tuple[Fraction, bool, str] | None:
    """Return (number, whether it is exclusive, keyword) of the tighter bound on one side."""
    plain, exclusive = name.lower(), f"exclusive{name}"
    bounds = []
    if plain in schema:
        bounds.append((exact(schema[plain]), schema.get(exclusive) is True, plain))
    if exclusive in schema and not isinstance(schema[exclusive], bool):
        bounds.append((exact(schema[exclusive]), True, exclusive))
    return tightest(bounds, key=lambda bound: bound[0]) if bounds else None


def _missing(schema: dict[str, Any]) -> Iterator[_Fault]:
    required = schema.get("required", [])
    if not _allows("object", schema) or isinstance(required, bool):
        return
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    is_closed = is_nothing(schema.get("additionalProperties"))
    is_long = len(required) * len(patterns) > MAX_SEARCHES
    for key in required:
        if is_nothing(properties.get(key)):
            yield "required", f"{key!r} is required, but its schema is false"
        elif is_closed and key not in properties and not is_long and not may_match(patterns, [key]):
            yield "required", f"{key!r} is required, but it is none of the properties that are allowed"
    if len(required) > schema.get("maxProperties", len(required)):
        yield "required", f"{len(required)} are required, but maxProperties is {schema['maxProperties']}"
    if is_closed and not patterns and len(properties) < schema.get("minProperties", 0):
        yield "minProperties", f"it is {schema['minProperties']}, but only {len(properties)} are allowed"


def _items(schema: dict[str, Any]) -> Iterator[_Fault]:
    first = schema.get("prefixItems", schema.get("items"))
    tail = schema.get("items" if "prefixItems" in schema else "additionalItems")
    length = len(first) if isinstance(first, list) else 0
    is_closed = is_nothing(tail) if isinstance(first, list) else is_nothing(first)
    if is_closed and schema.get("minItems", 0) > length and _allows("array", schema):
        yield "minItems", f"it is {schema['minItems']}, but only {length} items are allowed"


def _distinct(schema: dict[str, Any]) -> Iterator[_Fault]:
    """Yield faults of arrays and objects that need more distinct items or names than there are."""
    count = _num_values(schema.get("items"))
    if schema.get("uniqueItems") is True and "prefixItems" not in schema and count is not None:
        least = schema.get("minItems", 0)
        if least > count and _allows("array", schema):
            yield "minItems", f"it is {least}, but only {count} items are distinct"
    names = schema.get("propertyNames")
    if not isinstance(names, dict) or not _allows("object", schema):
        return
    listed = [names["const"]] if "const" in names else names.get("enum")
    texts = {name for name in listed or () if isinstance(name, str)}
    if listed is not None and len(texts) < schema.get("minProperties", 0):
        yield "minProperties", f"it is {schema['minProperties']}, but only {len(texts)} names are allowed"
    required = schema.get("required", [])
    for key in required if listed is not None and isinstance(required, list) else ():
        if key not in texts:
            yield "required", f"{key!r} is required, but propertyNames does not allow it"


def _num_values(schema: Any) -> int | None:
    """Return the number of values of a schema if it lists them; None if they may be more."""
    if not isinstance(schema, dict) or "const" in schema:
        return 1 if isinstance(schema, dict) else None
    if "enum" in schema:
        return len(set(map(canonical, schema["enum"])))
    return {"boolean": 2, "null": 1}.get(str(schema.get("type")))


def _combined(schema: dict[str, Any]) -> Iterator[_Fault]:
    if any(map(is_nothing, schema.get("allOf", ()))):
        yield "allOf", "one of them is false, so nothing satisfies all"
    if any(map(is_nothing, schema.get("anyOf", ()))) and all(map(is_nothing, schema["anyOf"])):
        yield "anyOf", "all of them are false"


RULES = (_no_choice, _pairs, _range, _missing, _items, _distinct, _combined)
