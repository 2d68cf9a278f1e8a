"""What stands around a mark is written in Lark too; a mark inside what cannot be is taken away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gencli.structured.rewrite.node import AT, Flat, GiveUp, Scope
from gencli.structured.rewrite.orders import names_apart
from gencli.structured.rewrite.regex import RegexError
from processors.grammar.backends.json_lark import (
    ARRAY,
    MARK,
    leading,
    leads,
    references,
    subschemas,
    unmarked,
)

__all__ = ["settled"]

_OBJECT = frozenset(("type", "properties", "required", "patternProperties", "additionalProperties", AT))
_MAPS = ("properties", "patternProperties")
_LISTS = ("anyOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "contains")


def settled(schema: Flat, scope: Scope) -> Flat:
    """The schema with its marks where llguidance can be told of them."""
    defs: dict[str, Any] = dict(schema.get("$defs", {}))
    root = {key: value for key, value in schema.items() if key != "$defs"}
    lost: set[str] = set()  # definitions that something leads to which llguidance reads as JSON Schema
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
    """One walk, in which more definitions are lost."""

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
                return self.inside({**names_apart(schema, self.scope), MARK: "in-order"})
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
        """The schema without marks, and what it leads to as well."""
        self.lost.update(references(schema))
        self.scope.narrow(_in_any_order(schema), "in the schema's order, for so is what it stands in")
        return unmarked(schema)


def _in_any_order(schema: Any) -> Iterator[str]:
    """The places of what loses that mark."""
    if isinstance(schema, dict):
        if schema.get(MARK) == "any-order":
            yield from (place for key in _MAPS for place in schema[AT].get(key, ()))
        for below in subschemas(schema):
            yield from _in_any_order(below)
