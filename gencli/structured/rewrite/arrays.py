"""Rewriting of array keywords."""

from __future__ import annotations

from itertools import permutations
from math import inf, perm
from typing import Any

from gencli.structured.rewrite.intersect import intersect, json_key
from gencli.structured.rewrite.node import AT, Flat, Scope, origins, put, without
from processors.grammar.backends.bag import MAX_COUNT, MAX_ONCE
from processors.grammar.backends.json_lark import MARK

__all__ = ["rewrite_array", "rewrite_unique"]

_PLACES = 8  # limit of positions of the item of `contains`
_LISTED = 500  # limit of arrays of distinct values, in all orders


def rewrite_array(flat: Flat, scope: Scope) -> list[Flat]:
    """Return flat schemas, one of which has to hold."""
    bounded = _bounded(flat)
    if bounded.get("minItems", 0) > bounded.get("maxItems", inf):
        return []
    return _contains(bounded, scope)


def _bounded(flat: Flat) -> Flat:
    """Bound the number of items by an item that allows no value."""
    heads = flat.get("prefixItems", [])
    kept = heads.index(False) if False in heads else len(heads)
    is_end = kept < len(heads) or flat.get("items") is False
    if not is_end or flat.get("maxItems", inf) <= kept:
        return flat
    keyword = "prefixItems" if kept < len(heads) else "items"
    flat = put(flat, "maxItems", kept, flat[AT].get(keyword, ()))
    return put(flat, "prefixItems", heads[:kept]) if kept < len(heads) else flat


def rewrite_unique(flat: Flat, scope: Scope) -> Flat:
    """Rewrite uniqueItems if the items have listed values."""
    if not flat.get("uniqueItems"):
        return flat
    places = flat[AT].get("uniqueItems", frozenset())
    if flat.get("maxItems", 2) <= 1:
        scope.note(places, "rewritten: with at most one item there is nothing to compare")
        return without(flat, "uniqueItems")
    items = flat.get("items")
    if (
        not isinstance(items, dict)
        or flat.get("type") != "array"
        or {"prefixItems", "contains"} & flat.keys()
    ):
        return flat
    values = list({json_key(value): value for value in reversed(_values(items))}.values())[::-1]
    least, most = flat.get("minItems", 0), min(len(values), flat.get("maxItems", len(values)))
    if not values or least > most:
        return flat
    if scope.backend == "llguidance" and len(values) <= MAX_ONCE:
        scope.note(places, "rewritten: a rule for what came so far")
        return {**put(flat, "items", {"enum": values, AT: {"enum": origins(items)}}), MARK: "counted"}
    if sum(perm(len(values), count) for count in range(least, most + 1)) > _LISTED:
        return flat
    listed = [list(order) for count in range(least, most + 1) for order in permutations(values, count)]
    scope.note(places, "rewritten: all arrays that it allows, listed")
    places |= origins(flat)
    return put({AT: {}}, "enum", listed, places)


def _values(items: Flat) -> list[Any]:
    """Return the values that items may have; [] if they are not listed."""
    if items.keys() == {"type", AT} and items["type"] in ("boolean", "null"):
        return [True, False] if items["type"] == "boolean" else [None]
    return list(items["enum"]) if items.keys() == {"enum", AT} else []


def _contains(flat: Flat, scope: Scope) -> list[Flat]:
    """Return one flat schema for each possible position of the item of `contains`."""
    if "contains" not in flat or "maxContains" in flat:
        return [flat]
    if (counted := _wanted(flat, scope)) is not None:
        return [counted]
    if flat.get("minContains", 1) > 1:
        return [flat]
    places = flat[AT].get("contains", frozenset())
    if flat.get("minContains") == 0:
        scope.note((*places, *flat[AT].get("minContains", ())), "says nothing here")
        return [without(flat, "contains", "minContains")]
    heads, rest, wanted = flat.get("prefixItems", []), flat.get("items", True), flat["contains"]
    most = flat.get("maxItems")
    if most is None or most > _PLACES or flat.get("type") != ["array"]:
        return [flat]
    scope.note((*places, *flat[AT].get("minContains", ())), "rewritten: one branch for each place")
    bare = without(flat, "contains", "minContains", "prefixItems")
    found = []
    for index in range(most):
        here = [*heads[: index + 1], *[rest] * (index + 1 - len(heads))]
        here[index] = intersect(here[index], wanted)
        branch = put(
            bare, "prefixItems", [*here, *heads[index + 1 :]], (*places, *flat[AT].get("prefixItems", ()))
        )
        found.append(put(branch, "minItems", max(index + 1, flat.get("minItems", 0)), places))
    return found


def _wanted(flat: Flat, scope: Scope) -> Flat | None:
    """Return the array with a counting rule for llguidance; None if impossible."""
    count, bound = flat.get("minContains", 1), max(flat.get("minItems", 0), flat.get("maxItems", 0))
    is_known = flat.keys() <= {
        "type",
        "items",
        "contains",
        "minContains",
        "minItems",
        "maxItems",
        AT,
    }
    if scope.backend != "llguidance" or flat.get("type") != ["array"] or not is_known:
        return None
    if not 1 <= count <= min(MAX_ONCE, flat.get("maxItems", inf)) or bound > MAX_COUNT:
        return None
    scope.note(
        (place for key in ("contains", "minContains") for place in flat[AT].get(key, ())),
        "rewritten: a rule for what came so far",
    )
    wanted = intersect(flat.get("items", True), flat["contains"])
    return {**put(flat, "contains", wanted, flat[AT].get("items", ())), MARK: "counted"}
