"""Names of properties in the words that a back end gets right: propertyNames and patternProperties."""

from __future__ import annotations

import re
from functools import reduce
from itertools import combinations

from gencli.structured.audit.shapes import shapes_of
from gencli.structured.audit.support import SUPPORT, Grade
from gencli.structured.rewrite.meet import both, check_names, matches
from gencli.structured.rewrite.node import AT, Flat, GiveUp, Schema, Scope, origins, put, without
from gencli.structured.rewrite.regex import RegexError
from gencli.structured.rewrite.strings import single_pattern
from gencli.structured.rewrite.words import others

__all__ = ["named", "patterned"]

_PATTERNS = 4  # of one object that are told from each other


def named(flat: Flat, scope: Scope) -> Flat:
    """propertyNames, as patternProperties and additionalProperties: false."""
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
    """The names that a schema allows, as one pattern; None for all."""
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
        return others(names["not"].get("enum", [names["not"].get("const")]))
    raise GiveUp("such propertyNames")


def patterned(flat: Flat, scope: Scope) -> Flat:
    """patternProperties as patterns that the back end reads right, no two of which match one name.

    Where that cannot be said they stay, and are left to the final check.
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
                properties[name] = below = both(below, rest) if matches(pattern, name) else below
        for count in range(1, len(patterns) + 1):
            for chosen in combinations(patterns, count):
                names = [name for name in properties if all(matches(one, name) for one in chosen)]
                text = single_pattern(chosen, [one for one in patterns if one not in chosen], names)
                if text is not None:
                    found[text] = reduce(both, (patterns[one] for one in chosen))
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
    """What the back end makes of the patterns, and of names that several of them match."""
    shapes = [
        shape for keyword, shape in shapes_of(flat) if keyword == "patternProperties" and "+" not in shape
    ]
    return [
        SUPPORT[scope.backend].grade(shape) for shape in shapes if not shape.endswith((":open", ":false"))
    ]
