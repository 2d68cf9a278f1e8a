"""Marks of objects and arrays to be written in Lark for llguidance; properties in any order.

For llguidance an object with properties in any order gets a mark; schemas that contain a mark are written in
Lark too, or the mark is removed. For xgrammar such an object gets a branch for each order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from math import factorial
from typing import Any

from gencli.structured.errors import GiveUp
from gencli.structured.regex.tree import RegexError
from gencli.structured.regex.words import finite_texts
from gencli.structured.rewrite.intersect import intersect, matches
from gencli.structured.rewrite.node import AT, Flat, Schema, Scope, put, without
from gencli.structured.rewrite.strings import are_apart, is_exact, single_pattern
from processors.grammar.backends.bag import MAX_BOUND, MAX_COUNT, MAX_ONCE, MAX_UNCOUNTED
from processors.grammar.backends.json_lark import (
    ARRAY,
    MARK,
    leading,
    leads,
    references,
    subschemas,
    unmarked,
)

__all__ = ["MAX_BRANCHED", "branch_orders", "mark_any_order", "settle_marks"]

MAX_BRANCHED = 4  # properties, 24 branches; with 5, compiling takes 30 times as long as for one order
_MAX_PATTERNS = 8  # patterns of names
_BELOW = ("properties", "patternProperties", "additionalProperties")
_BOUNDS = ("minProperties", "maxProperties")
_KEYWORDS = frozenset(("type", "required", *_BELOW, *_BOUNDS, AT))
_OBJECT = frozenset(("type", "properties", "required", "patternProperties", "additionalProperties", AT))
_MAPS = ("properties", "patternProperties")
_LISTS = ("anyOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "contains")


def mark_any_order(flat: Flat, scope: Scope) -> Flat:
    """Mark the object for llguidance, if its property names are distinguishable."""
    if not scope.any_order or scope.backend != "llguidance" or flat.get("type") != ["object"]:
        return flat
    if not any(isinstance(flat.get(key), dict) for key in _BELOW):
        return flat
    try:
        named = _declared(flat)
        _check_any_order(named)
        return {**_names_apart(named, scope), MARK: "any-order"}
    except (GiveUp, RegexError) as error:
        _tell(flat, scope, f"in the schema's order: {error}")
        return flat


def branch_orders(flat: Flat, scope: Scope, shared: Callable[[Schema], Schema]) -> list[Flat]:
    """Return the object once for each order of its properties, for xgrammar, if the orders are few.

    `shared` returns a named reference to a schema that several branches use. Additional properties stay last.
    """
    properties = flat.get("properties", {})
    if not scope.any_order or scope.backend != "xgrammar" or _has_one_order(flat):
        return [flat]
    count = factorial(min(len(properties), MAX_BRANCHED + 1))
    if len(properties) > MAX_BRANCHED or count > scope.orders:
        many = f"there are more than {MAX_BRANCHED} properties, or too many such objects"
        _tell(flat, scope, f"in the schema's order: {many}")
        return [flat]
    if flat.get("additionalProperties") is not False or flat.get("patternProperties"):
        _tell(flat, scope, "properties whose names are free come behind the others")
    scope.notes.update(
        dict.fromkeys(
            flat[AT].get("properties", ()), "rewritten: one branch for each order of the properties"
        )
    )
    scope.orders -= count
    scope.spend(count)
    below = {name: shared(one) for name, one in properties.items()}
    found = [put(flat, "properties", {name: below[name] for name in order}) for order in permutations(below)]
    # xgrammar merges branches that differ only in order.
    return [{**one, "x-order": index} for index, one in enumerate(found)]


def _has_one_order(flat: Flat) -> bool:
    """Whether the properties can have only one order."""
    if flat.get("type") not in ("object", ["object"]):
        return True
    is_open = flat.get("additionalProperties") is not False or flat.get("patternProperties")
    named = [name for name, below in flat.get("properties", {}).items() if below is not False]
    return len(named) + bool(is_open) < 2 or not named


def _tell(flat: Flat, scope: Scope, text: str) -> None:
    scope.narrow(next(flat[AT][key] for key in _BELOW if key in flat[AT]), text)


def _check_any_order(flat: Flat) -> None:
    """Raise GiveUp unless the object can be written in any order."""
    names, bounds = flat.get("properties", ()), [flat[key] for key in _BOUNDS if key in flat]
    is_open = bool(flat.get("patternProperties")) or flat.get("additionalProperties") is not False
    if more := flat.keys() - _KEYWORDS:
        raise GiveUp(f"{min(more)} is not known in any other")
    if len(names) > (most := MAX_ONCE if bounds else MAX_UNCOUNTED):
        raise GiveUp(f"there are more than {most} properties")
    if max(bounds, default=0) > (MAX_BOUND if is_open else MAX_COUNT):
        raise GiveUp("it has a large number of properties")


def _declared(flat: Flat) -> Flat:
    """Move names that a pattern lists to `properties`."""
    if "additionalProperties" not in flat:  # declared properties would forbid additional ones
        return flat
    properties, patterns = dict(flat.get("properties", {})), dict(flat.get("patternProperties", {}))
    for pattern in list(patterns):
        if (names := finite_texts(pattern)) is not None:
            below = patterns.pop(pattern)
            properties |= {name: intersect(properties.get(name, True), below) for name in names}
    if len(patterns) == len(flat.get("patternProperties", {})):
        return flat
    places = flat[AT].get("patternProperties", ())
    flat = put(flat, "patternProperties", patterns) if patterns else without(flat, "patternProperties")
    return put(flat, "properties", properties, places)


def _names_apart(flat: Flat, scope: Scope) -> Flat:
    """Return the object with disjoint patterns that match no declared name, and no other names.

    Raises GiveUp or RegexError if that is impossible.
    """
    names, patterns = list(flat.get("properties", ())), dict(flat.get("patternProperties", {}))
    if not patterns:
        return flat
    if len(patterns) > _MAX_PATTERNS or not are_apart(tuple(patterns)):
        raise GiveUp("its patterns match the same names, or are many")
    rest = flat.get("additionalProperties", True)
    found: dict[str, Schema] = {}
    for pattern, below in patterns.items():
        taken = [name for name in names if matches(pattern, name)]
        is_kept = rest is False and not taken and is_exact(pattern, scope)
        text = pattern if is_kept else single_pattern([pattern], (), taken)
        found |= {} if text is None else {text: below}
    if rest is not False:
        others = single_pattern([r"^[\s\S]*$"], patterns, names)
        found |= {} if others is None else {others: rest}
    return put(put(flat, "patternProperties", found), "additionalProperties", False)


def settle_marks(schema: Flat, scope: Scope) -> Flat:
    """Return the schema with marks only where llguidance supports them."""
    defs: dict[str, Any] = dict(schema.get("$defs", {}))
    root = {key: value for key, value in schema.items() if key != "$defs"}
    lost: set[str] = set()  # definitions that llguidance reaches from a part in JSON Schema
    while True:
        one = _Settler(leading({name: below for name, below in defs.items() if name not in lost}), scope)
        found = {
            name: one.dropped(below) if name in lost else one.settle(below) for name, below in defs.items()
        }
        whole = {**one.settle(root), **({"$defs": found} if found else {})}
        if one.lost <= lost:
            return whole
        lost |= one.lost


class _Settler:
    """One traversal of the schema, which may find more definitions that lose their marks."""

    def __init__(self, leading_: frozenset[str], scope: Scope) -> None:
        self.leading, self.scope = leading_, scope
        self.lost: set[str] = set()

    def settle(self, schema: Any) -> Any:
        if not leads(schema, self.leading) or schema.keys() <= {"$ref", AT}:
            return schema
        if MARK in schema or schema.keys() <= {"anyOf", AT} or schema.keys() <= {*ARRAY, AT}:
            return self.inside(schema)
        if schema.get("type") == "object" and schema.keys() <= _OBJECT:
            self.scope.spend()
            try:
                return self.inside({**_names_apart(schema, self.scope), MARK: "in-order"})
            except (GiveUp, RegexError):
                pass
        return self.dropped(schema)

    def inside(self, schema: Flat) -> Flat:
        found = dict(schema)
        for key in schema.keys() & {*_MAPS, *_LISTS, *_SINGLE}:
            value = schema[key]
            if key in _MAPS:
                found[key] = {name: self.settle(below) for name, below in value.items()}
            else:
                found[key] = [self.settle(one) for one in value] if key in _LISTS else self.settle(value)
        return found

    def dropped(self, schema: Any) -> Any:
        """Return the schema without marks; definitions it refers to lose theirs in the next traversal."""
        self.lost.update(references(schema))
        self.scope.narrow(_in_any_order(schema), "in the schema's order, for so is what it stands in")
        return unmarked(schema)


def _in_any_order(schema: Any) -> Iterator[str]:
    """Yield the origins of objects that lose the mark for any order."""
    if isinstance(schema, dict):
        if schema.get(MARK) == "any-order":
            yield from (place for key in _MAPS for place in schema[AT].get(key, ()))
        for below in subschemas(schema):
            yield from _in_any_order(below)
