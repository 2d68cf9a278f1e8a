"""Rewriting of number keywords."""

from __future__ import annotations

from math import ceil, floor

from gencli.structured.rewrite.node import AT, Flat, Scope, put, without

__all__ = ["rewrite_number"]

_WORD = 1 << 63
_MOST = 10**18 - 1
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def rewrite_number(flat: Flat, scope: Scope) -> Flat:
    """Return the flat schema with its number keywords rewritten."""
    kinds = flat.get("type")
    step = flat.get("multipleOf")
    if kinds == ["number"] and step is not None and step == int(step):
        scope.note(flat[AT].get("multipleOf", ()), "rewritten: whole numbers")
        flat = put(put(flat, "type", ["integer"]), "multipleOf", int(step))
    if flat.get("type") != ["integer"] or not any(key in flat for key in _BOUNDS):
        return flat
    return _readable(_whole_bounds(flat), scope)


def _readable(flat: Flat, scope: Scope) -> Flat:
    """Replace bounds beyond 64 bits by bounds of 18 digits, or remove them."""
    for keyword, side in (("minimum", -1), ("maximum", 1)):
        bound = flat.get(keyword)
        if bound is None or _can_read(bound, scope.backend):
            continue
        places = flat[AT].get(keyword, frozenset())
        if bound * side > 0:
            scope.narrow(places, "rewritten: whole numbers of at most 18 digits")
            flat = put(flat, keyword, side * _MOST, places)
        else:
            scope.leave(places, f"{scope.backend} reads no bounds beyond 64 bits")
            flat = without(flat, keyword)
    return flat


def _can_read(bound: int, backend: str) -> bool:
    if backend == "llguidance":  # llguidance reads bounds as floats
        return abs(bound) < _WORD - 1
    return -_WORD <= bound < _WORD


def _whole_bounds(flat: Flat) -> Flat:
    """Return the schema with inclusive integer bounds."""
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
