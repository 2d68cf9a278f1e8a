"""Bounds and multiples in the words that a back end gets right."""

from __future__ import annotations

from math import ceil, floor

from gencli.structured.rewrite.node import AT, Flat, Scope, put, without

__all__ = ["rewrite_number"]

_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def rewrite_number(flat: Flat, scope: Scope) -> Flat:
    """The flat schema with its number keywords rewritten."""
    kinds = flat.get("type")
    step = flat.get("multipleOf")
    if kinds == ["number"] and step is not None and step == int(step):
        scope.note(flat[AT].get("multipleOf", ()), "rewritten: whole numbers")
        flat = put(put(flat, "type", ["integer"]), "multipleOf", int(step))
    if flat.get("type") != ["integer"] or not any(key in flat for key in _BOUNDS):
        return flat
    return _whole_bounds(flat)


def _whole_bounds(flat: Flat) -> Flat:
    """Inclusive whole bounds."""
    for keyword, plain, side in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        values = [flat[key] for key in (keyword, plain) if key in flat]
        if not values:
            continue
        bounds = (
            [floor(flat[keyword]) + 1 if side > 0 else ceil(flat[keyword]) - 1] if keyword in flat else []
        )
        if plain in flat:
            bounds.append(ceil(flat[plain]) if side > 0 else floor(flat[plain]))
        places = flat[AT].get(keyword, frozenset())
        flat = put(without(flat, keyword), plain, max(bounds) if side > 0 else min(bounds), places)
    return flat
