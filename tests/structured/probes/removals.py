"""A probe's schema without one construct of its shape: what only that refuses is valid then."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from gencli.structured.audit import shapes_of
from gencli.structured.flat_schema import keyword_of
from gencli.structured.json_schema import APPLICATORS, GROUPS, walk

__all__ = ["IDLE", "removals"]

# Constructs that refuse nothing where a schema with them can be satisfied.
IDLE = {
    *(
        ("additionalItems:alone", "additionalItems"),
        ("const+keywords", "keywords"),
        ("uniqueItems:false", "uniqueItems"),
    ),
    *(("items+unevaluatedItems", "unevaluatedItems"),),
    *(("additionalProperties+unevaluatedProperties", "unevaluatedProperties"),),
    *(
        (f"{name}{mark}", name)
        for name in ("maxContains", "minContains")
        for mark in ("", ":union", ":untyped")
    ),
    # Beside patterns a marked object has no names that are not declared.
    *((f"patternProperties+properties:{mark}", "properties") for mark in ("any-order", "in-order")),
    *((f"additionalProperties:true{mark}", "additionalProperties") for mark in ("", ":union", ":untyped")),
    *((f"propertyNames:{mark}", "propertyNames") for mark in ("", ":union", ":untyped")),
}
_CATEGORIES: dict[str, tuple[str, ...]] = {
    **GROUPS,
    "applicator": APPLICATORS,
    "values": ("enum", "const"),
    "type": ("type",),
    "keywords": tuple(keyword for keywords in GROUPS.values() for keyword in keywords),
}
# What makes a pattern special, as text: without it, it matches more.
_SPECIAL = {
    ":lookaround": r"\(\?<?[=!](?:[^()]|\([^()]*\))*\)",
    ":irregular": r"\\[1-9b]",
    ":anchors": r"(?<=[(|])\^",
}

_Schema = dict[str, Any]


def removals(shape: str, schema: Any) -> Iterator[tuple[str, Any]]:
    """(name of the construct, the schema without it)."""
    first, *more = [keyword_of(part) for part in shape.split("+")]
    if shape.endswith(":foreign"):  # of another type: it is to refuse nothing
        return
    for name in (first, *more):
        keywords = {name} if name == first or name not in _CATEGORIES else set(_CATEGORIES[name]) - {first}
        if name != "patternProperties" or ":" not in shape or ":false" in shape:
            yield name, _changed(schema, shape, lambda here, gone=keywords: _without(here, gone))
    if first in ("pattern", "patternProperties") and not more and ":false" not in shape:
        yield from _of_patterns(shape, schema, first)
    if first == "allOf" and not more:
        branches = max(
            len(here["allOf"]) for _, here in walk(schema) if isinstance(here, dict) and "allOf" in here
        )
        for index in range(branches):
            yield (
                f"branch {index + 1}",
                _changed(schema, shape, lambda here, at=index: _branch_gone(here, at)),
            )
    if shape in ("oneOf:other", "oneOf:values"):
        yield "that one holds only", _changed(schema, shape, _any_of)


def _changed(schema: Any, shape: str, change: Callable[[_Schema], None]) -> Any:
    """A copy with the change made wherever something has the shape."""
    found = json.loads(json.dumps(schema))
    for here in [here for _, here in walk(found) if isinstance(here, dict)]:
        if any(one == shape for _, one in shapes_of(here)):
            change(here)
    return found


def _without(here: _Schema, keywords: set[str]) -> None:
    for keyword in keywords & here.keys():
        del here[keyword]


def _branch_gone(here: _Schema, index: int) -> None:
    del here["allOf"][index : index + 1]


def _any_of(here: _Schema) -> None:
    here["anyOf"] = here.pop("oneOf")


def _of_patterns(shape: str, schema: Any, keyword: str) -> Iterator[tuple[str, Any]]:
    special = next((text for form, text in _SPECIAL.items() if form in shape), "")
    count = 1
    if keyword == "patternProperties":
        count = max(
            len(here[keyword]) for _, here in walk(schema) if isinstance(here, dict) and keyword in here
        )
        for index in range(count):
            yield (
                f"value {index + 1}",
                _changed(schema, shape, lambda here, at=index: _value_gone(here[keyword], at)),
            )
    for index, number in product(range(count), range(1, 4)):  # each lookahead by itself

        def weaken(here: _Schema, index: int = index, number: int = number) -> None:
            if keyword == "pattern":
                here["pattern"] = _weaker(here["pattern"], special, number)
            elif here.get("additionalProperties") is False:  # where other names are free, less is more
                here[keyword] = {
                    _weaker(text, special, number) if at == index else text: below
                    for at, (text, below) in enumerate(here[keyword].items())
                }

        if (weaker := _changed(schema, shape, weaken)) != schema:
            yield f"part {number} of pattern {index + 1}", weaker


def _weaker(pattern: str, special: str, number: int) -> str:
    """Without the n-th special part; a pattern that has none is replaced by one that matches every text."""
    if not special:
        return "^" if number == 1 else pattern
    found = list(re.finditer(special, pattern))
    if number > len(found):
        return pattern
    start, end = found[number - 1].span()
    return pattern[:start] + pattern[end:]


def _value_gone(patterns: _Schema, index: int) -> None:
    for name in list(patterns)[index : index + 1]:
        patterns[name] = True
