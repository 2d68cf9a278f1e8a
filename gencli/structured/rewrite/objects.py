"""Rewriting of object keywords: property names, required and additional properties, their number."""

from __future__ import annotations

import re
from functools import reduce
from itertools import combinations
from typing import Any

from gencli.structured.audit.shapes import shapes_of
from gencli.structured.audit.support import SUPPORT, Grade
from gencli.structured.errors import GiveUp
from gencli.structured.regex.tree import RegexError
from gencli.structured.regex.words import finite_texts, texts_without
from gencli.structured.rewrite.intersect import check_names, intersect, matches
from gencli.structured.rewrite.marks import mark_any_order
from gencli.structured.rewrite.node import AT, Flat, Schema, Scope, origins, put, without
from gencli.structured.rewrite.strings import single_pattern
from processors.grammar.backends.json_lark import MARK

__all__ = ["drop_dead_properties", "rewrite_object"]

_BRANCHES = 40  # limit of flat schemas for minProperties and maxProperties
_LISTED = 256  # limit of the names of a pattern that become properties
_PATTERNS = 4  # limit of patterns of one object that are made disjoint


def rewrite_object(flat: Flat, scope: Scope) -> list[Flat]:
    """Return flat schemas, one of which has to hold; [] if no value satisfies the schema."""
    check_names(flat, [*flat.get("properties", ()), *flat.get("required", ())])
    declared = _declared(_patterned(_finite(_named(_listed(flat, scope), scope), scope), scope), scope)
    if declared is None:
        return []
    closed = mark_any_order(_closed(declared, scope), scope)
    return [closed] if MARK in closed else _counted(closed, scope)


def _declared(flat: Flat, scope: Scope) -> Flat | None:
    """Declare every required property; None if one of them allows no value."""
    properties = dict(flat.get("properties", {}))
    for name in flat.get("required", ()):
        if name not in properties:
            matching = [
                below for key, below in flat.get("patternProperties", {}).items() if matches(key, name)
            ]
            below: Schema = True if matching else flat.get("additionalProperties", True)
            for one in matching:
                below = intersect(below, one)
            properties[name] = below
        if properties[name] is False:
            return None
    if len(properties) == len(flat.get("properties", {})):
        return flat
    return put(flat, "properties", properties, flat[AT].get("required", ()))


def _closed(flat: Flat, scope: Scope) -> Flat:
    """Forbid additional properties if the schema does not mention them."""
    properties = flat.get("properties", {})
    declared = [name for name, below in properties.items() if below is not False]
    is_silent = "additionalProperties" not in flat
    if is_silent and not scope.extra and declared and len(declared) >= flat.get("minProperties", 0):
        flat = {**flat, "additionalProperties": False}
        scope.note(flat[AT].get("properties", ()), "rewritten: additional properties are not generated")
    return drop_dead_properties(flat) or flat


def drop_dead_properties(flat: Flat) -> Flat | None:
    """Remove properties that allow no value, if no pattern matches their names.

    Returns None if one of them is required.
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
    """Rewrite minProperties and maxProperties of a closed object as sets of properties, if these are few."""
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
    """Return (required, forbidden) names of each branch; None if there are too many branches."""
    if least == 1 and most >= len(optional):  # the first present property distinguishes the branches
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


def _listed(flat: Flat, scope: Scope) -> Flat:
    """Rewrite propertyNames that allow few names as optional properties with these names."""
    names = flat.get("propertyNames")
    if not isinstance(names, dict):
        return flat
    try:
        pattern = _name_pattern(names)
    except GiveUp:  # _named says so
        return flat
    listed = finite_texts(pattern, _LISTED) if pattern is not None else None
    if not listed:
        return flat
    places = flat[AT].get("propertyNames", frozenset()) | origins(names)
    given, patterns = flat.get("properties", {}), flat.get("patternProperties", {})
    properties: dict[str, Schema] = {name: below for name, below in given.items() if name in listed}
    for name in listed:
        matching = [below for key, below in patterns.items() if matches(key, name)]
        if name not in given and not matching:
            properties[name] = flat.get("additionalProperties", True)
        for below in matching:
            properties[name] = intersect(properties.get(name, True), below)
    scope.note(places, "rewritten: optional properties with these names")
    more = (place for key in ("patternProperties", "additionalProperties") for place in flat[AT].get(key, ()))
    flat = without(flat, "propertyNames", "patternProperties")
    flat = put(flat, "properties", properties, (*places, *flat[AT].get("properties", ()), *more))
    return put(flat, "additionalProperties", False, places)


def _finite(flat: Flat, scope: Scope) -> Flat:
    """Rewrite patternProperties that match few names as optional properties with these names."""
    patterns: dict[str, Schema] = flat.get("patternProperties", {})
    listed = {key: names for key in patterns if (names := finite_texts(key, _LISTED)) is not None}
    if not listed:
        return flat
    places = flat[AT].get("patternProperties", frozenset())
    properties = dict(flat.get("properties", {}))
    for key, names in listed.items():
        for name in names:
            properties[name] = intersect(properties.get(name, True), patterns[key])
    scope.note(places, "rewritten: optional properties with the names that a pattern matches")
    flat = put(flat, "properties", properties, places)
    rest = {key: below for key, below in patterns.items() if key not in listed}
    return put(flat, "patternProperties", rest) if rest else without(flat, "patternProperties")


def _named(flat: Flat, scope: Scope) -> Flat:
    """Rewrite propertyNames as patternProperties and additionalProperties: false."""
    names = flat.get("propertyNames")
    if names is None or "patternProperties" in flat:
        return flat
    places = flat[AT].get("propertyNames", frozenset())
    if names is False:
        scope.note(places, "rewritten: no property at all")
        return put(without(flat, "propertyNames"), "maxProperties", 0, places)
    try:
        pattern = _name_pattern(names)
    except GiveUp as error:
        scope.leave((*places, *origins(names)), f"{error} cannot be said in a mask")
        return without(flat, "propertyNames")
    scope.note(places, "rewritten: patternProperties")
    flat = without(flat, "propertyNames")
    if pattern is None:
        return flat
    inner = places | origins(names)
    rest = flat.get("additionalProperties", True)
    properties = {
        name: below if matches(pattern, name) else False for name, below in flat.get("properties", {}).items()
    }
    flat = put(flat, "properties", properties, places) if properties else flat
    more = (*inner, *flat[AT].get("additionalProperties", ()))
    if rest is not False:
        flat = put(flat, "patternProperties", {pattern: rest}, more)
    return put(flat, "additionalProperties", False, more)


def _name_pattern(names: Schema) -> str | None:
    """Return one pattern of the names that a schema allows; None if it allows all."""
    if isinstance(names, bool):
        return None
    keys = names.keys() - {AT, "type"}
    if not keys:
        return None
    if keys <= {"minLength", "maxLength"}:
        return f"^(?:.|\\n){{{names.get('minLength', 0)},{names.get('maxLength', '')}}}$"
    if keys == {"pattern"}:
        return str(names["pattern"])
    values = [names["const"]] if keys == {"const"} else names["enum"] if keys == {"enum"} else None
    if values is not None:
        return f"^(?:{'|'.join(re.escape(value) for value in values if isinstance(value, str))})$"
    if (
        keys == {"not"}
        and isinstance(names["not"], dict)
        and names["not"].keys() <= {AT, "enum", "const", "type"}
    ):
        return texts_without(names["not"].get("enum", [names["not"].get("const")]))
    raise GiveUp("such propertyNames")


def _patterned(flat: Flat, scope: Scope) -> Flat:
    """Rewrite patternProperties to patterns that the back end reads correctly and that are pairwise disjoint.

    If that is impossible, the patterns stay and are left to the final check.
    """
    patterns: dict[str, Schema] = flat.get("patternProperties", {})
    if not patterns or set(grades := _grades(flat, scope)) <= {"exact"}:
        return flat
    places = flat[AT].get("patternProperties", frozenset())
    properties = dict(flat.get("properties", {}))
    found: dict[str, Schema] = {}
    try:
        if len(patterns) > _PATTERNS:
            raise GiveUp(f"more than {_PATTERNS} patterns of names")
        check_names(flat, properties)
        for name, below in properties.items():
            for pattern, rest in patterns.items():
                properties[name] = below = intersect(below, rest) if matches(pattern, name) else below
        for count in range(1, len(patterns) + 1):
            for chosen in combinations(patterns, count):
                names = [name for name in properties if all(matches(one, name) for one in chosen)]
                text = single_pattern(chosen, [one for one in patterns if one not in chosen], names)
                if text is not None:
                    found[text] = reduce(intersect, (patterns[one] for one in chosen))
    except (GiveUp, RegexError) as error:
        if not set(grades) <= {"exact", "tight"}:
            scope.leave(places, f"the names cannot be said in a mask: {error}")
        return flat
    scope.note(
        places, "rewritten: patterns that exclude each other, in the form that the back end reads right"
    )
    flat = put(flat, "properties", properties, places) if properties else flat
    return put(flat, "patternProperties", found) if found else without(flat, "patternProperties")


def _grades(flat: Flat, scope: Scope) -> list[Grade]:
    """Return the back end's grades of the patterns, and of names that several patterns match."""
    shapes = [
        shape for keyword, shape in shapes_of(flat) if keyword == "patternProperties" and "+" not in shape
    ]
    return [
        SUPPORT[scope.backend].grade(shape) for shape in shapes if not shape.endswith((":open", ":false"))
    ]
