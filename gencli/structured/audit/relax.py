"""Removal of keywords that a back end rejects; the final check enforces them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gencli.structured.audit.audit import Graded, graded
from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.rewrite.node import ALSO, AT, Schema
from gencli.structured.schema.pointers import child, descend, keys_of

__all__ = ["Spelled", "above", "relax", "split_origins"]

Spelled = tuple[Any, dict[str, frozenset[str]]]  # a plain schema, and origins by pointer

# The order in which the keywords of one place are removed.
_ORDER = (
    *("unevaluatedProperties", "unevaluatedItems", "uniqueItems", "contains", "minContains", "maxContains"),
    *(
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "propertyNames",
        "minProperties",
        "maxProperties",
    ),
    *(
        "if",
        "then",
        "else",
        "not",
        "$dynamicRef",
        "$recursiveRef",
        "patternProperties",
        "multipleOf",
        "format",
    ),
    *("pattern", "minLength", "maxLength", "additionalItems", "allOf", "oneOf", "anyOf"),
)


_TOGETHER = {
    "if": ("if", "then", "else"),
    "contains": ("contains", "minContains", "maxContains"),
}


def split_origins(schema: Schema, pointer: str = "") -> Spelled:
    """Return the plain schema without origins, and its origins by JSON pointer."""
    at: dict[str, frozenset[str]] = {}
    return _split_origins(schema, pointer, at), at


def _split_origins(value: Any, pointer: str, at: dict[str, frozenset[str]]) -> Any:
    if isinstance(value, list):
        return [_split_origins(item, child(pointer, index), at) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    for keyword, places in value.get(AT, {}).items():
        at[child(pointer, keyword)] = places
    kept = {key: below for key, below in value.items() if key not in (AT, ALSO)}
    found = {key: _split_origins(below, child(pointer, key), at) for key, below in kept.items()}
    if value.get(ALSO):
        also = [{"type": "string", **one} for one in value[ALSO]]
        found["allOf"] = _split_origins(also, child(pointer, "allOf"), at)
        at[child(pointer, "allOf")] = frozenset()
    return found


def relax(schema: Any, backend: str, deadline: Deadline = NEVER) -> tuple[Any, list[Graded], list[Graded]]:
    """Return the schema without rejected keywords, the grades of the others, and the removed keywords."""
    gone: list[Graded] = []
    grades = list(graded(schema, backend, deadline))
    if refused := _refused(grades):
        schema = json.loads(json.dumps(schema))
    while refused:
        for one in refused:
            _remove(schema, one)
        gone.extend(refused)
        grades = list(graded(schema, backend, deadline))
        refused = _refused(grades)
    return schema, grades, gone


def _refused(grades: list[Graded]) -> list[Graded]:
    """Return for each place the one rejected keyword that is removed first."""
    found: dict[str, Graded] = {}
    for one in grades:
        if one.grade == "refused" or one.shape == "?format":
            place = one.pointer.rpartition("/")[0]
            found[place] = min(found.get(place, one), one, key=_rank)
    return [one for place, one in found.items() if not any(above in found for above in above(place))]


def above(pointer: str) -> Iterator[str]:
    """Yield the pointers of the places that contain a place, nearest first."""
    while pointer:
        pointer = pointer.rpartition("/")[0]
        yield pointer


def _rank(one: Graded) -> int:
    return _ORDER.index(one.keyword) if one.keyword in _ORDER else len(_ORDER)


def _remove(schema: Any, one: Graded) -> None:
    *way, keyword = keys_of(one.pointer)
    node = schema
    for key in way:
        node = descend(node, key)
    if one.shape.startswith("properties:false"):
        node["properties"] = {name: below for name, below in node["properties"].items() if below is not False}
    elif keyword == "oneOf" and "anyOf" not in node:
        node["anyOf"] = node.pop("oneOf")
    else:
        for name in _TOGETHER.get(keyword, (keyword,)):
            node.pop(name, None)
