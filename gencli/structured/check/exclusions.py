"""Contradicting keywords of one schema, without its subschemas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from typing import Any

from gencli.structured.regex.ecma_search import MAX_SEARCHES, MAX_SECONDS, searches
from gencli.structured.validate.keywords import canonical, exact
from gencli.structured.validate.messages import shortened

__all__ = ["RULES", "TYPES", "is_nothing", "own_types"]

TYPES = frozenset(("array", "boolean", "number", "null", "object", "string"))
_PAIRS = (
    ("minLength", "maxLength", "string"),
    ("minItems", "maxItems", "array"),
    ("minContains", "maxContains", "array"),
    ("minProperties", "maxProperties", "object"),
)

_Fault = tuple[str, str]  # keyword, fault


def is_nothing(schema: Any) -> bool:
    """Whether the schema obviously rejects every value."""
    return schema is False or (isinstance(schema, dict) and schema.get("not", False) in ({}, True))


def own_types(schema: dict[str, Any]) -> list[frozenset[str]]:
    """Return the types that `type`, `const` and `enum` each allow; integers count as numbers."""
    named = schema.get("type", list(TYPES))
    names = [named] if isinstance(named, str) else named
    found = [frozenset("number" if name == "integer" else name for name in names)]
    for values in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
        if values is not None:
            found.append(frozenset(map(_type_of, values)))
    return found


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
    """Return (number, whether it is exclusive, keyword) of the tighter bound on one side."""
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
    is_closed = is_nothing(schema.get("additionalProperties"))
    is_long = len(required) * len(patterns) > MAX_SEARCHES
    for key in required:
        if is_nothing(properties.get(key)):
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
    is_closed = is_nothing(rest) if isinstance(first, list) else is_nothing(first)
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
    if listed is None:
        return
    texts = {name for name in listed if isinstance(name, str)}
    if len(texts) < schema.get("minProperties", 0):
        yield "minProperties", f"it is {schema['minProperties']}, but only {len(texts)} names are allowed"
    required = schema.get("required", [])
    for key in required if isinstance(required, list) else ():
        if key not in texts:
            yield "required", f"{key!r} is required, but propertyNames does not allow it"


def _num_values(schema: Any) -> int | None:
    """Return the number of values of a schema if it lists them; None if they may be more."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return 1
    if "enum" in schema:
        return len(set(map(canonical, schema["enum"])))
    return {"boolean": 2, "null": 1}.get(str(schema.get("type")))


def _combined(schema: dict[str, Any]) -> Iterator[_Fault]:
    if any(map(is_nothing, schema.get("allOf", ()))):
        yield "allOf", "one of them is false, so nothing satisfies all"
    if any(map(is_nothing, schema.get("anyOf", ()))) and all(map(is_nothing, schema["anyOf"])):
        yield "anyOf", "all of them are false"


RULES = (_no_choice, _pairs, _range, _missing, _items, _distinct, _combined)
