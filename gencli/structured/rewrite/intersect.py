"""Intersection of flat schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Sized
from fractions import Fraction
from math import lcm
from typing import Any

from gencli.structured.errors import GiveUp
from gencli.structured.regex.ecma_search import MAX_SEARCHES, MAX_SECONDS, searches
from gencli.structured.rewrite.node import ALSO, AT, FRACTION, Flat, Schema, origins

__all__ = ["check_names", "intersect", "intersect_flat", "is_empty", "json_key", "matches"]

_LARGER = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_SMALLER = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
_OBJECT = ("properties", "patternProperties", "additionalProperties")
_ARRAY = ("prefixItems", "items")
_NOTHING = object()


def intersect_flat(a: Flat, b: Flat) -> Flat | None:
    """Return a flat schema of the values that satisfy both; None if there are none.

    Raises GiveUp if one flat schema cannot express the intersection.
    """
    at = {
        key: a.get(AT, {}).get(key, frozenset()) | b.get(AT, {}).get(key, frozenset())
        for key in (*a.get(AT, {}), *b.get(AT, {}))
    }
    found: Flat = {AT: at}
    done = {AT}
    for keywords, merge in ((_OBJECT, _objects), (_ARRAY, _arrays)):
        if any(key in a for key in keywords) and any(key in b for key in keywords):
            found.update(merge(a, b))
            done.update(keywords)
            for key in keywords:
                if lost := _lost(key, a, b, found):
                    at[key] = at.get(key, frozenset()) | lost
    for key in (*a, *(key for key in b if key not in a)):
        if key in done:
            continue
        if key in a and key in b:
            value = _RULES.get(key, _same)(a[key], b[key])
            if key in ("pattern", "format") and value is _NOTHING:
                found[key] = a[key]
                one = {key: b[key], AT: {key: b.get(AT, {}).get(key, frozenset())}}
                found[ALSO] = [*found.get(ALSO, ()), one]
                continue
            found[key] = value
        elif key == ALSO:
            found[ALSO] = [*found.get(ALSO, ()), *(a.get(ALSO) or b[ALSO])]
        else:
            found[key] = a[key] if key in a else b[key]
    return None if is_empty(found) else found


def _lost(keyword: str, a: Flat, b: Flat, found: Flat) -> frozenset[str]:
    """Return the origins of subschemas that became False."""
    merged = found.get(keyword)
    if merged is False:
        return origins(a.get(keyword)) | origins(b.get(keyword))
    names = merged.items() if isinstance(merged, dict) and AT not in merged else ()
    void = [name for name, below in names if below is False]
    return frozenset(
        place for one in (a, b) for name in void for place in origins(one.get(keyword, {}).get(name))
    )


def intersect(a: Schema, b: Schema) -> Schema:
    """Return a schema of the values that satisfy both."""
    if a is True or a == {} or a == {AT: {}} or (a is not False and a == b):
        return b
    if b is True or b == {} or b == {AT: {}}:
        return a
    if a is False or b is False or _are_apart(a, b):
        return False
    return {"allOf": [a, b], AT: {}}


def _are_apart(a: Flat | bool, b: Flat | bool) -> bool:
    """Whether no value satisfies both, judged by listed values."""
    lists = [_values(one) for one in (a, b) if isinstance(one, dict)]
    return len(lists) == 2 and all(lists) and not (lists[0] & lists[1])


def _values(schema: Flat) -> frozenset[str]:
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    return frozenset(map(json_key, values)) if len(values) < 100 else frozenset()


def json_key(value: Any) -> str:
    """Return a text that is equal for equal JSON values: for 1 and 1.0, but not for 1 and true."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(below) for key, below in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def is_empty(flat: Flat) -> bool:
    """Whether a flat schema obviously rejects every value."""
    if flat.get("type") == [] or flat.get("enum") == []:
        return True
    types = set(flat.get("type", ())) or None
    if types and types <= {"integer", "number"} and _no_number(flat):
        return True
    if types == {"string"} and flat.get("minLength", 0) > flat.get("maxLength", float("inf")):
        return True
    if types == {"array"} and flat.get("minItems", 0) > flat.get("maxItems", float("inf")):
        return True
    return types == {"object"} and _no_object(flat)


def _no_number(flat: Flat) -> bool:
    infinity = float("inf")
    low = max(flat.get("minimum", -infinity), flat.get("exclusiveMinimum", -infinity))
    high = min(flat.get("maximum", infinity), flat.get("exclusiveMaximum", infinity))
    return low > high or (low == high and low in (flat.get("exclusiveMinimum"), flat.get("exclusiveMaximum")))


def _no_object(flat: Flat) -> bool:
    required = flat.get("required", ())
    if len(required) > flat.get("maxProperties", float("inf")):
        return True
    check_names(flat, required)
    return any(_property(flat, name) is False for name in required)


def _property(flat: Flat, name: str) -> Schema:
    """Return a flat schema's schema for the property with a name."""
    found: Schema = True
    is_named = name in flat.get("properties", {})
    if is_named:
        found = flat["properties"][name]
    for pattern, below in flat.get("patternProperties", {}).items():
        if matches(pattern, name):
            is_named, found = True, intersect(found, below)
    return found if is_named else flat.get("additionalProperties", True)


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern of property names matches a name. Raises GiveUp if the search fails."""
    try:
        return searches(pattern, name, MAX_SECONDS)
    except (TimeoutError, ValueError):
        raise GiveUp(f"the pattern {pattern[:60]!r} cannot be tried on a name") from None


def check_names(flat: Flat, names: Sized) -> None:
    """Raise GiveUp if there are too many names to match all patterns against them."""
    if len(flat.get("patternProperties", ())) * len(names) > MAX_SEARCHES:
        raise GiveUp("too many patterns and names")


def _objects(a: Flat, b: Flat) -> Flat:
    names = list(dict.fromkeys([*a.get("properties", {}), *b.get("properties", {})]))
    found: Flat = {}
    for one in (a, b):
        check_names(one, names)
    if names:
        found["properties"] = {name: intersect(_property(a, name), _property(b, name)) for name in names}
    patterns = _patterns(a, b)
    if patterns:
        found["patternProperties"] = patterns
    if "additionalProperties" in a or "additionalProperties" in b:
        found["additionalProperties"] = intersect(
            a.get("additionalProperties", True), b.get("additionalProperties", True)
        )
    return found


def _patterns(a: Flat, b: Flat) -> dict[str, Schema]:
    """Return the patterns of both; a name that matches one also has to satisfy the rest of the other."""
    ours, theirs = a.get("patternProperties", {}), b.get("patternProperties", {})
    rest = {"a": a.get("additionalProperties", True), "b": b.get("additionalProperties", True)}
    if ours and theirs and ours.keys() != theirs.keys() and rest != {"a": True, "b": True}:
        raise GiveUp("two sets of patternProperties, and additionalProperties")
    if ours.keys() == theirs.keys():
        return {pattern: intersect(ours[pattern], theirs[pattern]) for pattern in ours}
    if ours and theirs:
        return {key: intersect(ours.get(key, True), theirs.get(key, True)) for key in {**ours, **theirs}}
    other, named = (rest["b"], b) if ours else (rest["a"], a)
    names = named.get("properties", {})
    if other is not True and any(matches(pattern, name) for pattern in ours or theirs for name in names):
        raise GiveUp("a name that one has in properties, the other in patternProperties")
    return {pattern: intersect(below, other) for pattern, below in (ours or theirs).items()}


def _arrays(a: Flat, b: Flat) -> Flat:
    heads = a.get("prefixItems", []), b.get("prefixItems", [])
    rests = a.get("items", True), b.get("items", True)
    length = max(map(len, heads))
    full = [[*head, *[rest] * (length - len(head))] for head, rest in zip(heads, rests, strict=True)]
    found: Flat = {"prefixItems": [intersect(*pair) for pair in zip(*full, strict=True)]} if length else {}
    if "items" in a or "items" in b:
        found["items"] = intersect(*rests)
    return found


def _types(a: list[str], b: list[str]) -> list[str]:
    parts = {"number": ("integer", FRACTION)}
    there = {part for kind in b for part in parts.get(kind, (kind,))}
    found = [part for kind in a for part in parts.get(kind, (kind,)) if part in there]
    if "integer" in found and FRACTION in found:
        found = ["number" if kind == "integer" else kind for kind in found if kind != FRACTION]
    return list(dict.fromkeys(found))


def _multiple(a: float, b: float) -> float:
    x, y = Fraction(str(a)), Fraction(str(b))
    found = Fraction(
        lcm(x.numerator * y.denominator, y.numerator * x.denominator), x.denominator * y.denominator
    )
    return int(found) if found.denominator == 1 else float(found)


def _common(a: list[Any], b: list[Any]) -> list[Any]:
    there = set(map(json_key, b))
    return [value for value in a if json_key(value) in there]


def _same(a: Any, b: Any) -> Any:
    if json.dumps(a, sort_keys=True, default=list) == json.dumps(b, sort_keys=True, default=list):
        return a
    raise GiveUp("one keyword twice, with values that one cannot say")


def _text(a: str, b: str) -> Any:
    return a if a == b else _NOTHING


_RULES: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(_LARGER, max),
    **dict.fromkeys(_SMALLER, min),
    "type": _types,
    "enum": _common,
    "multipleOf": _multiple,
    "required": lambda a, b: list(dict.fromkeys([*a, *b])),
    "pattern": _text,
    "format": _text,
    "uniqueItems": lambda a, b: a or b,
    "propertyNames": intersect,
    ALSO: lambda a, b: [*a, *b],
}
