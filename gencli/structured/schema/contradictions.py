"""What no value can satisfy, as far as it is seen without searching."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from typing import Any

from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.schema.drafts import draft_of
from gencli.structured.schema.keywords import canonical, exact
from gencli.structured.schema.messages import shortened
from gencli.structured.schema.patterns import MAX_SEARCHES, MAX_SECONDS, searches
from gencli.structured.schema.pointers import child
from gencli.structured.schema.refs import References, find_loop, refs_in

__all__ = ["find_contradictions"]

_TYPES = frozenset(("array", "boolean", "number", "null", "object", "string"))
_PAIRS = (
    ("minLength", "maxLength", "string"),
    ("minItems", "maxItems", "array"),
    ("minContains", "maxContains", "array"),
    ("minProperties", "maxProperties", "object"),
)
_MAX_CHAIN = 30  # references and allOf followed for the types of a value

_Fault = tuple[str, str]


def find_contradictions(root: Any, deadline: Deadline = NEVER) -> Iterator[_Fault]:
    """(pointer, what is wrong) of the places that nothing satisfies.

    The schema's own references have to lead somewhere. Looks where a value can come to stand: not below
    `not` or conditions, and not at an alternative while there is another.
    """
    yield from _Search(root, deadline).faults()


def _is_nothing(schema: Any) -> bool:
    return schema is False or (isinstance(schema, dict) and schema.get("not", False) in ({}, True))


class _Search:
    def __init__(self, root: Any, deadline: Deadline) -> None:
        self._root = root
        self._deadline = deadline
        self._references = References(root)
        self._draft = draft_of(root)
        self._types: dict[str, frozenset[str]] = {}

    def faults(self) -> Iterator[_Fault]:
        if _is_nothing(self._root):
            yield "", "this schema is false: nothing satisfies it"
        seen: set[str] = set()
        stack = [""]
        while stack:
            pointer = stack.pop()
            schema = self._at(pointer)
            if pointer not in seen and isinstance(schema, dict):
                seen.add(pointer)
                yield from self._local(pointer, schema)
                stack.extend(reversed(list(self._below(pointer, schema))))
        loop = find_loop([""], self._musts)
        if loop is not None:
            yield loop, "a value would have to contain itself, so it would never end"

    def _at(self, pointer: str) -> Any:
        """The schema at a pointer, with the keywords that its draft acts on."""
        self._deadline.check()
        schema = self._references.at(pointer)
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema and self._draft.name in ("4", "6", "7"):  # which ignore what stands beside it
            return {"$ref": schema["$ref"]}
        return {key: value for key, value in schema.items() if key in self._draft.judged()}

    def _local(self, pointer: str, schema: dict[str, Any]) -> Iterator[_Fault]:
        for rule in _RULES:
            yield from ((child(pointer, keyword), text) for keyword, text in rule(schema))
        parts = self._type_parts(pointer, schema, 0)
        if all(parts) and not frozenset.intersection(*parts):
            at = next((key for key in ("allOf", "$ref", "enum", "const") if key in schema), "type")
            yield child(pointer, at), "no value has all the types that are asked for"
        for keyword in ("anyOf", "oneOf"):
            pointers = [child(pointer, keyword, n) for n in range(len(schema.get(keyword, ())))]
            if pointers and all(self._is_impossible(below) for below in pointers):
                yield child(pointer, keyword), "none of the alternatives can be satisfied"

    def _is_impossible(self, pointer: str) -> bool:
        schema = self._at(pointer)
        if not isinstance(schema, dict) or _is_nothing(schema):
            return _is_nothing(schema)
        return any(True for rule in _RULES for _ in rule(schema)) or not self._types_of(pointer, 0)

    def _below(self, pointer: str, schema: dict[str, Any]) -> Iterator[str]:
        """Where a value, or a part of it, comes to stand next."""
        for _, ref in refs_in(schema):
            yield self._references.resolve(ref, pointer)[0]
        for keyword in ("allOf", "prefixItems", "items"):
            if isinstance(schema.get(keyword), list):
                yield from (child(pointer, keyword, n) for n in range(len(schema[keyword])))
        for keyword in ("properties", "patternProperties"):
            yield from (child(pointer, keyword, key) for key in schema.get(keyword, ()))
        for keyword in ("items", "additionalProperties", "contains", "propertyNames"):
            if isinstance(schema.get(keyword), dict):
                yield child(pointer, keyword)
        for keyword in ("anyOf", "oneOf"):
            pointers = [child(pointer, keyword, n) for n in range(len(schema.get(keyword, ())))]
            yield from (below for below in pointers if not self._is_impossible(below))

    def _musts(self, pointer: str) -> Iterator[str]:
        """The schemas that stand for something every value of this one contains."""
        schema = self._at(pointer)
        if not isinstance(schema, dict):
            return
        for _, ref in refs_in(schema):
            yield self._references.resolve(ref, pointer)[0]
        yield from (child(pointer, "allOf", n) for n in range(len(schema.get("allOf", ()))))
        if schema.get("type") == "object":
            needed = set(schema.get("required", ())) & set(schema.get("properties", ()))
            yield from (child(pointer, "properties", key) for key in sorted(needed))
        needs_more = schema.get("minItems", 0) > len(schema.get("prefixItems", ()))
        if schema.get("type") == "array" and needs_more and isinstance(schema.get("items"), dict):
            yield child(pointer, "items")

    def _types_of(self, pointer: str, depth: int) -> frozenset[str]:
        """The types a value may have; integers are numbers here."""
        if pointer not in self._types:
            schema = self._at(pointer)
            if not isinstance(schema, dict) or depth > _MAX_CHAIN:
                return frozenset() if schema is False else _TYPES
            parts = self._type_parts(pointer, schema, depth + 1)
            self._types[pointer] = frozenset.intersection(*parts)
        return self._types[pointer]

    def _type_parts(self, pointer: str, schema: dict[str, Any], depth: int) -> list[frozenset[str]]:
        """The types that each part of a schema allows; a value has one that all of them allow."""
        targets = [self._references.resolve(ref, pointer)[0] for _, ref in refs_in(schema)]
        targets += [child(pointer, "allOf", n) for n in range(len(schema.get("allOf", ())))]
        return [*_own_types(schema), *(self._types_of(target, depth) for target in targets)]


def _own_types(schema: dict[str, Any]) -> list[frozenset[str]]:
    named = schema.get("type", list(_TYPES))
    names = [named] if isinstance(named, str) else named
    found = [frozenset("number" if name == "integer" else name for name in names)]
    for values in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
        if values is not None:
            found.append(frozenset(map(_type_of, values)))
    return found


def _allows(kind: str, schema: dict[str, Any]) -> bool:
    return all(kind in types for types in _own_types(schema))


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
    (least, is_above, keyword), (most, is_below, other) = low, high
    if least > most or (least == most and (is_above or is_below)):
        yield keyword, f"{schema[keyword]} leaves no number up to {other}, which is {schema[other]}"
        return
    step = exact(schema["multipleOf"]) if "multipleOf" in schema else Fraction(1)
    if "multipleOf" not in schema and schema.get("type") != "integer":
        return
    first = math.floor(least / step) + 1 if is_above else math.ceil(least / step)
    last = math.ceil(most / step) - 1 if is_below else math.floor(most / step)
    if first > last:
        kind = "multiple" if "multipleOf" in schema else "whole number"
        yield keyword, f"no {kind} lies between {schema[keyword]} and {schema[other]}"


def _bound(
    schema: dict[str, Any], name: str, tightest: Callable[..., Any]
) -> tuple[Fraction, bool, str] | None:
    """(number, whether it is excluded, keyword) of the tighter of both bounds on one side."""
    plain, exclusive = name.lower(), f"exclusive{name}"
    found = []
    if plain in schema:
        found.append((exact(schema[plain]), schema.get(exclusive) is True, plain))
    if exclusive in schema and not isinstance(schema[exclusive], bool):
        found.append((exact(schema[exclusive]), True, exclusive))
    return tightest(found, key=lambda bound: bound[0]) if found else None


def _missing(schema: dict[str, Any]) -> Iterator[_Fault]:
    required = schema.get("required", [])
    if not _allows("object", schema) or isinstance(required, bool):
        return
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    is_closed = _is_nothing(schema.get("additionalProperties"))
    is_long = len(required) * len(patterns) > MAX_SEARCHES
    for key in required:
        if _is_nothing(properties.get(key)):
            yield "required", f"{key!r} is required, but its schema is false"
        elif is_closed and key not in properties and not is_long and not _matches(patterns, key):
            yield "required", f"{key!r} is required, but it is none of the properties that are allowed"
    if len(required) > schema.get("maxProperties", len(required)):
        yield "required", f"{len(required)} are required, but maxProperties is {schema['maxProperties']}"
    if is_closed and not patterns and len(properties) < schema.get("minProperties", 0):
        yield "minProperties", f"it is {schema['minProperties']}, but only {len(properties)} are allowed"


def _matches(patterns: dict[str, Any], key: str) -> bool:
    with suppress(TimeoutError):
        return any(searches(pattern, key, MAX_SECONDS) for pattern in patterns)
    return True


def _items(schema: dict[str, Any]) -> Iterator[_Fault]:
    first = schema.get("prefixItems", schema.get("items"))
    rest = schema.get("items" if "prefixItems" in schema else "additionalItems")
    length = len(first) if isinstance(first, list) else 0
    is_closed = _is_nothing(rest) if isinstance(first, list) else _is_nothing(first)
    if is_closed and schema.get("minItems", 0) > length and _allows("array", schema):
        yield "minItems", f"it is {schema['minItems']}, but only {length} items are allowed"


def _combined(schema: dict[str, Any]) -> Iterator[_Fault]:
    if any(map(_is_nothing, schema.get("allOf", ()))):
        yield "allOf", "one of them is false, so nothing satisfies all"
    if any(map(_is_nothing, schema.get("anyOf", ()))) and all(map(_is_nothing, schema["anyOf"])):
        yield "anyOf", "all of them are false"


_RULES = (_no_choice, _pairs, _range, _missing, _items, _combined)
