"""Objects whose properties may come in any order, which no back end can say without forgetting which came."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import factorial

from gencli.structured.rewrite.node import AT, Flat, Schema, Scope, put

__all__ = ["MAX_ORDERED", "in_orders"]

MAX_ORDERED = 4  # properties: 24 branches; with 5 a compile takes 30 times as long as in one order


def in_orders(flat: Flat, scope: Scope, shared: Callable[[Schema], Schema]) -> list[Flat]:
    """The object once for each order of its properties, where they may come in any and are few.

    `shared` gives a schema that stands in several branches a name. Additional properties stay last.
    """
    properties = flat.get("properties", {})
    if not scope.any_order or len(properties) < 2:
        return [flat]
    count = factorial(min(len(properties), MAX_ORDERED + 1))
    is_few = len(properties) <= MAX_ORDERED and count <= scope.orders
    how = f"in the schema's order: there are more than {MAX_ORDERED} properties, or too many such objects"
    note = "rewritten: one branch for each order of the properties" if is_few else how
    scope.notes.update(dict.fromkeys(flat[AT].get("properties", ()), note))
    if not is_few:
        return [flat]
    scope.orders -= count
    scope.spend(count)
    below = {name: shared(one) for name, one in properties.items()}
    found = [put(flat, "properties", {name: below[name] for name in order}) for order in permutations(below)]
    if scope.backend != "xgrammar":
        return found
    # It takes branches that differ in nothing but their order for one.
    return [{**one, "x-order": index} for index, one in enumerate(found)]
