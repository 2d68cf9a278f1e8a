"""Complements of flat schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gencli.structured.errors import GiveUp
from gencli.structured.regex.words import complement, texts_without
from gencli.structured.rewrite.node import ALSO, AT, FRACTION, Flat, origins

__all__ = ["negate"]


def negate(flat: Flat) -> list[Flat]:
    """Return flat schemas, one of which holds for each value that the given schema rejects.

    Raises GiveUp if JSON Schema cannot express the complement in keywords that a mask enforces.
    """
    if ALSO in flat:
        raise GiveUp("the complement of two patterns")
    found: list[Flat] = []
    for keyword, value in flat.items():
        if keyword == AT:
            continue
        if keyword not in _RULES:
            raise GiveUp(f"the complement of {keyword}")
        places = flat.get(AT, {}).get(keyword, frozenset())
        for other in _RULES[keyword](value, flat):
            found.append({**other, AT: {**dict.fromkeys(other, places), **other.get(AT, {})}})
    return found


_MANY = 200
_NUMBERS = ("integer", FRACTION)
_COMPLEMENT = ("null", "boolean", *_NUMBERS, "string", "array", "object")


def _type(value: list[str], flat: Flat) -> Iterator[Flat]:
    if left := [
        kind for kind in _COMPLEMENT if kind not in value and not ("number" in value and kind in _NUMBERS)
    ]:
        yield {"type": left}


def _enum(values: list[Any], flat: Flat) -> Iterator[Flat]:
    if any(isinstance(value, list | dict) for value in values):
        raise GiveUp("the complement of a list or an object")
    if len(values) > _MANY:
        raise GiveUp(f"the complement of more than {_MANY} values")
    texts = [value for value in values if isinstance(value, str)]
    numbers = sorted(
        {value for value in values if isinstance(value, int | float) and not isinstance(value, bool)}
    )
    flags = [flag for flag in (True, False) if not any(flag is value for value in values)]
    whole = [
        kind
        for kind in ("null", "boolean", "number", "string", "array", "object")
        if not _meets(kind, values)
    ]
    if whole:
        yield {"type": whole}
    if len(flags) == 1:
        yield {"enum": flags}
    if texts:
        yield {"type": ["string"], "pattern": texts_without(texts)}
    for low, high in zip([None, *numbers], [*numbers, None], strict=True):
        if numbers:
            yield {
                "type": ["number"],
                **({} if low is None else {"exclusiveMinimum": low}),
                **({} if high is None else {"exclusiveMaximum": high}),
            }


def _meets(kind: str, values: list[Any]) -> bool:
    tests: dict[str, Callable[[Any], bool]] = {
        "null": lambda value: value is None,
        "boolean": lambda value: isinstance(value, bool),
        "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
        "string": lambda value: isinstance(value, str),
    }
    return kind in tests and any(map(tests[kind], values))


def _bound(kind: str, opposite: str) -> Callable[[Any, Flat], Iterator[Flat]]:
    def rule(value: Any, flat: Flat) -> Iterator[Flat]:
        yield {"type": [kind], opposite: value}

    return rule


def _count(kind: str, opposite: str, step: int) -> Callable[[Any, Flat], Iterator[Flat]]:
    def rule(value: Any, flat: Flat) -> Iterator[Flat]:
        if value + step >= 0:
            yield {"type": [kind], opposite: value + step}

    return rule


def _pattern(text: str, flat: Flat) -> Iterator[Flat]:
    yield {"type": ["string"], "pattern": complement(text)}


def _required(names: list[str], flat: Flat) -> Iterator[Flat]:
    for name in names:
        yield {"type": ["object"], "properties": {name: False}}


def _properties(properties: dict[str, Any], flat: Flat) -> Iterator[Flat]:
    for name, below in properties.items():
        if below is not True:
            refused = {"not": below, AT: {"not": origins(below)}} if below is not False else True
            yield {"type": ["object"], "required": [name], "properties": {name: refused}}


def _items(below: Any, flat: Flat) -> Iterator[Flat]:
    heads = flat.get("prefixItems", [])
    if below is False:
        yield {"type": ["array"], "minItems": len(heads) + 1}
    elif heads:
        raise GiveUp("the complement of items behind others")
    elif below is not True:
        yield {"type": ["array"], "contains": {"not": below, AT: {"not": origins(below)}}}


def _contains(below: Any, flat: Flat) -> Iterator[Flat]:
    yield {"type": ["array"], "items": {"not": below, AT: {"not": origins(below)}}}


def _prefix_items(heads: list[Any], flat: Flat) -> Iterator[Flat]:
    for index, below in enumerate(heads):
        if below is not True:
            refused = {"not": below, AT: {"not": origins(below)}} if below is not False else True
            yield {"type": ["array"], "minItems": index + 1, "prefixItems": [*[True] * index, refused]}


_RULES: dict[str, Callable[[Any, Flat], Iterator[Flat]]] = {
    "type": _type,
    "enum": _enum,
    "minimum": _bound("number", "exclusiveMaximum"),
    "maximum": _bound("number", "exclusiveMinimum"),
    "exclusiveMinimum": _bound("number", "maximum"),
    "exclusiveMaximum": _bound("number", "minimum"),
    "minLength": _count("string", "maxLength", -1),
    "maxLength": _count("string", "minLength", 1),
    "pattern": _pattern,
    "minItems": _count("array", "maxItems", -1),
    "maxItems": _count("array", "minItems", 1),
    "minProperties": _count("object", "maxProperties", -1),
    "maxProperties": _count("object", "minProperties", 1),
    "required": _required,
    "properties": _properties,
    "items": _items,
    "contains": _contains,
    "prefixItems": _prefix_items,
}
