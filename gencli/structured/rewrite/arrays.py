"""Arrays in the words that a back end gets right."""

from __future__ import annotations

from itertools import permutations
from math import inf, perm

from gencli.structured.rewrite.meet import both
from gencli.structured.rewrite.node import AT, Flat, Scope, put, without

__all__ = ["rewrite_array"]

_PLACES = 8  # where the item that `contains` asks for may be
_LISTED = 500  # arrays of values that differ, listed in all orders


def rewrite_array(flat: Flat, scope: Scope) -> list[Flat]:
    """Flat schemas of which one has to hold."""
    bounded = _bounded(flat)
    if bounded.get("minItems", 0) > bounded.get("maxItems", inf):
        return []
    return [_unique(one, scope) for one in _contains(bounded, scope)]


def _bounded(flat: Flat) -> Flat:
    """An item that can have no value is a bound of their number."""
    heads = flat.get("prefixItems", [])
    kept = heads.index(False) if False in heads else len(heads)
    is_end = kept < len(heads) or flat.get("items") is False
    if not is_end or flat.get("maxItems", inf) <= kept:
        return flat
    keyword = "prefixItems" if kept < len(heads) else "items"
    flat = put(flat, "maxItems", kept, flat[AT].get(keyword, ()))
    return put(flat, "prefixItems", heads[:kept]) if kept < len(heads) else flat


def _unique(flat: Flat, scope: Scope) -> Flat:
    if not flat.get("uniqueItems"):
        return flat
    places = flat[AT].get("uniqueItems", frozenset())
    values = flat["items"].get("enum") if isinstance(flat.get("items"), dict) else None
    if flat.get("maxItems", 2) <= 1:
        scope.note(places, "rewritten: with at most one item there is nothing to compare")
        return without(flat, "uniqueItems")
    if values is None or flat.get("type") != ["array"] or "prefixItems" in flat:
        return flat
    counts = range(flat.get("minItems", 0), min(len(values), flat.get("maxItems", len(values))) + 1)
    if sum(perm(len(values), count) for count in counts) > _LISTED:
        return flat
    listed = [list(order) for count in counts for order in permutations(values, count)]
    scope.note(places, "rewritten: all arrays that it allows, listed")
    places |= frozenset(place for key in ("items", "minItems", "maxItems") for place in flat[AT].get(key, ()))
    places |= frozenset(place for below in flat["items"][AT].values() for place in below)
    return put(without(flat, "uniqueItems", "items", "minItems", "maxItems"), "enum", listed, places)


def _contains(flat: Flat, scope: Scope) -> list[Flat]:
    """One flat schema for each place where the item may be."""
    if "contains" not in flat or flat.get("minContains", 1) > 1 or "maxContains" in flat:
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
        here[index] = both(here[index], wanted)
        branch = put(
            bare, "prefixItems", [*here, *heads[index + 1 :]], (*places, *flat[AT].get("prefixItems", ()))
        )
        found.append(put(branch, "minItems", max(index + 1, flat.get("minItems", 0)), places))
    return found
