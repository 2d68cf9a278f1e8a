"""Objects in the words that a back end gets right."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from gencli.structured.rewrite.meet import both, check_names, matches
from gencli.structured.rewrite.names import named, patterned
from gencli.structured.rewrite.node import AT, Flat, Schema, Scope, put, without
from gencli.structured.rewrite.orders import marked
from processors.grammar.backends.json_lark import MARK

__all__ = ["rewrite_object", "without_dead"]

_BRANCHES = 40  # flat schemas that a number of properties may become


def rewrite_object(flat: Flat, scope: Scope) -> list[Flat]:
    """Flat schemas of which one has to hold; none if nothing satisfies it."""
    check_names(flat, [*flat.get("properties", ()), *flat.get("required", ())])
    declared = _declared(patterned(named(flat, scope), scope), scope)
    if declared is None:
        return []
    closed = marked(_closed(declared, scope), scope)
    return [closed] if MARK in closed else _counted(closed, scope)


def _declared(flat: Flat, scope: Scope) -> Flat | None:
    """Every required property is declared; None if one of them can have no value."""
    properties = dict(flat.get("properties", {}))
    for name in flat.get("required", ()):
        if name not in properties:
            matching = [
                below for key, below in flat.get("patternProperties", {}).items() if matches(key, name)
            ]
            below: Schema = True if matching else flat.get("additionalProperties", True)
            for one in matching:
                below = both(below, one)
            properties[name] = below
        if properties[name] is False:
            return None
    if len(properties) == len(flat.get("properties", {})):
        return flat
    return put(flat, "properties", properties, flat[AT].get("required", ()))


def _closed(flat: Flat, scope: Scope) -> Flat:
    """No additional properties, where the schema is silent about them [50]."""
    properties = flat.get("properties", {})
    declared = [name for name, below in properties.items() if below is not False]
    is_silent = "additionalProperties" not in flat
    if is_silent and not scope.extra and declared and len(declared) >= flat.get("minProperties", 0):
        flat = {**flat, "additionalProperties": False}
        scope.note(flat[AT].get("properties", ()), "rewritten: additional properties are not generated")
    return without_dead(flat) or flat


def without_dead(flat: Flat) -> Flat | None:
    """Without properties that can have no value, where their names are allowed nowhere else.

    None if one of them is required.
    """
    properties = flat.get("properties", {})
    dead = [name for name, below in properties.items() if below is False]
    if any(name in dead for name in flat.get("required", ())):
        return None
    patterns = {
        text: below for text, below in flat.get("patternProperties", {}).items() if below is not False
    }
    if flat.get("additionalProperties") is not False:
        return flat
    if len(patterns) < len(flat.get("patternProperties", {})):
        flat = put(flat, "additionalProperties", False, flat[AT].get("patternProperties", ()))
        flat = put(flat, "patternProperties", patterns) if patterns else without(flat, "patternProperties")
    free = {name for name in dead if not any(matches(pattern, name) for pattern in patterns)}
    if not free:
        return flat
    return put(flat, "properties", {name: properties[name] for name in properties if name not in free})


def _counted(flat: Flat, scope: Scope) -> list[Flat]:
    """minProperties and maxProperties of a closed object, as its sets of properties where they are few."""
    keys = [key for key in ("minProperties", "maxProperties") if key in flat]
    required = dict.fromkeys(flat.get("required", []))
    optional = [name for name in flat.get("properties", {}) if name not in required]
    is_closed = flat.get("additionalProperties") is False and not flat.get("patternProperties")
    if not keys or not is_closed:
        return [flat]
    places = [place for key in keys for place in flat[AT].get(key, ())]
    least, most = flat.get("minProperties", 0), flat.get("maxProperties", len(required) + len(optional))
    bare = without(flat, *keys)
    if least <= len(required) and most >= len(required) + len(optional):
        scope.note(places, "says nothing here")
        return [bare]
    branches = _sets(optional, least - len(required), most - len(required))
    if branches is None:
        return [flat]
    scope.note(places, "rewritten: one branch for each set of properties")
    return [_only(bare, must, never, places) for must, never in branches]


def _sets(optional: list[str], least: int, most: int) -> list[tuple[list[str], list[str]]] | None:
    """(has to be there, may not be there) of each branch; None if there are too many."""
    if least == 1 and most >= len(optional):  # the first one that is there tells the branches apart
        branches = [([name], optional[:index]) for index, name in enumerate(optional)]
        return branches if len(branches) <= _BRANCHES else None
    if least <= 0 and most == 1:
        return [
            ([], optional),
            *(([name], [other for other in optional if other != name]) for name in optional),
        ]
    found: list[tuple[list[str], list[str]]] = []
    if len(optional) > 12:
        return None
    for count in range(max(least, 0), min(most, len(optional)) + 1):
        for chosen in combinations(optional, count):
            found.append((list(chosen), [name for name in optional if name not in chosen]))
    return found if len(found) <= _BRANCHES else None


def _only(flat: Flat, must: list[str], never: list[str], places: Any) -> Flat:
    properties = {name: below for name, below in flat["properties"].items() if name not in never}
    flat = put(flat, "properties", properties, places)
    required = [*flat.get("required", []), *must]
    return put(flat, "required", required, places) if required else flat
