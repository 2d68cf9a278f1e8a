"""Rewriting of object and array keywords, and marks of objects and arrays that are written in Lark for
llguidance. For llguidance an object with properties in any order gets a mark; schemas that contain a
mark are written in Lark too, or the mark is removed. For xgrammar such an object gets a branch for each
order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import combinations, permutations
from math import factorial, inf, perm
from typing import Any

from gencli.structured.audit import shapes_of
from gencli.structured.flat_schema import (
    AT,
    SUPPORT,
    Flat,
    Grade,
    Schema,
    Scope,
    check_names,
    intersect,
    json_key,
    matches,
    origins,
    origins_of,
    put,
    without,
)
from gencli.structured.grammar_tree import RegexError
from gencli.structured.pattern_sets import finite_texts, texts_without
from gencli.structured.rewrite_strings import are_apart, is_exact, single_pattern
from gencli.structured.schema_errors import GiveUp
from processors.grammar.json_grammars import (
    ARRAY,
    MARK,
    MAX_BOUND,
    MAX_COUNT,
    MAX_ONCE,
    MAX_UNCOUNTED,
    VALUE_LISTS,
    VALUE_SINGLE,
    changed_below,
    leading,
    leads,
    references,
    subschemas,
    unmarked,
)

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
            for pattern_schema in matching:
                below = intersect(below, pattern_schema)
            properties[name] = below
        if properties[name] is False:
            return None
    if len(properties) == len(flat.get("properties", {})):
        return flat
    return put(flat, "properties", properties, origins_of(flat, "required"))


def _closed(flat: Flat, scope: Scope) -> Flat:
    """Forbid additional properties if the schema does not mention them."""
    properties = flat.get("properties", {})
    declared = [name for name, below in properties.items() if below is not False]
    is_silent = "additionalProperties" not in flat
    if is_silent and not scope.extra and declared and len(declared) >= flat.get("minProperties", 0):
        flat = {**flat, "additionalProperties": False}
        scope.note(origins_of(flat, "properties"), "rewritten: additional properties are not generated")
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
        flat = put(flat, "additionalProperties", False, origins_of(flat, "patternProperties"))
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
    pointers = origins_of(flat, *keys)
    least, most = flat.get("minProperties", 0), flat.get("maxProperties", len(required) + len(optional))
    bare = without(flat, *keys)
    if least <= len(required) and most >= len(required) + len(optional):
        scope.note(pointers, "has no effect here")
        return [bare]
    branches = _sets(optional, least - len(required), most - len(required))
    if branches is None:
        return [flat]
    scope.note(pointers, "rewritten: one branch for each set of properties")
    return [_only(bare, must, never, pointers) for must, never in branches]


def _sets(optional: list[str], least: int, most: int) -> list[tuple[list[str], list[str]]] | None:
    """Return (required, forbidden) names of each branch; None if there are too many branches."""
    if least == 1 and most >= len(optional):  # the first present property distinguishes the branches
        branches = [([name], optional[:index]) for index, name in enumerate(optional)]
        return branches if len(branches) <= _BRANCHES else None
    if least <= 0 and most == 1:
        others = [([name], [other for other in optional if other != name]) for name in optional]
        return [([], optional), *others]
    if len(optional) > 12:
        return None
    branches = [
        (list(chosen), [name for name in optional if name not in chosen])
        for count in range(max(least, 0), min(most, len(optional)) + 1)
        for chosen in combinations(optional, count)
    ]
    return branches if len(branches) <= _BRANCHES else None


def _only(flat: Flat, must: list[str], never: list[str], pointers: Any) -> Flat:
    properties = {name: below for name, below in flat["properties"].items() if name not in never}
    flat = put(flat, "properties", properties, pointers)
    required = [*flat.get("required", []), *must]
    return put(flat, "required", required, pointers) if required else flat


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
    pointers = origins_of(flat, "propertyNames") | origins(names)
    declared, patterns = flat.get("properties", {}), flat.get("patternProperties", {})
    properties: dict[str, Schema] = {name: below for name, below in declared.items() if name in listed}
    for name in listed:
        matching = [below for key, below in patterns.items() if matches(key, name)]
        if name not in declared and not matching:
            properties[name] = flat.get("additionalProperties", True)
        for below in matching:
            properties[name] = intersect(properties.get(name, True), below)
    scope.note(pointers, "rewritten: optional properties with these names")
    more = origins_of(flat, "additionalProperties")
    flat = without(flat, "propertyNames", "patternProperties")
    flat = put(flat, "properties", properties, (*pointers, *origins_of(flat, "properties"), *more))
    return put(flat, "additionalProperties", False, pointers)


def _finite(flat: Flat, scope: Scope) -> Flat:
    """Rewrite patternProperties that match few names as optional properties with these names."""
    patterns: dict[str, Schema] = flat.get("patternProperties", {})
    listed = {key: names for key in patterns if (names := finite_texts(key, _LISTED)) is not None}
    if not listed:
        return flat
    pointers = origins_of(flat, "patternProperties")
    properties = dict(flat.get("properties", {}))
    for key, names in listed.items():
        for name in names:
            properties[name] = intersect(properties.get(name, True), patterns[key])
    scope.note(pointers, "rewritten: optional properties with the names that a pattern matches")
    flat = put(flat, "properties", properties, pointers)
    kept = {key: below for key, below in patterns.items() if key not in listed}
    return put(flat, "patternProperties", kept) if kept else without(flat, "patternProperties")


def _named(flat: Flat, scope: Scope) -> Flat:
    """Rewrite propertyNames as patternProperties and additionalProperties: false."""
    names = flat.get("propertyNames")
    if names is None or "patternProperties" in flat:
        return flat
    pointers = origins_of(flat, "propertyNames")
    if names is False:
        scope.note(pointers, "rewritten: no property at all")
        return put(without(flat, "propertyNames"), "maxProperties", 0, pointers)
    try:
        pattern = _name_pattern(names)
    except GiveUp as error:
        scope.leave((*pointers, *origins(names)), f"a mask cannot express {error}")
        return without(flat, "propertyNames")
    scope.note(pointers, "rewritten: patternProperties")
    flat = without(flat, "propertyNames")
    if pattern is None:
        return flat
    inner = pointers | origins(names)
    others = flat.get("additionalProperties", True)
    properties = {
        name: below if matches(pattern, name) else False for name, below in flat.get("properties", {}).items()
    }
    flat = put(flat, "properties", properties, pointers) if properties else flat
    more = (*inner, *origins_of(flat, "additionalProperties"))
    if others is not False:
        flat = put(flat, "patternProperties", {pattern: others}, more)
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
    refused = names["not"] if keys == {"not"} else None
    if isinstance(refused, dict) and refused.keys() <= {AT, "enum", "const", "type"}:
        return texts_without(refused.get("enum", [refused.get("const")]))
    raise GiveUp("this form of propertyNames")


def _patterned(flat: Flat, scope: Scope) -> Flat:
    """Rewrite patternProperties to patterns that the back end reads correctly and that are pairwise disjoint.

    If that is impossible, the patterns stay and are left to the final check.
    """
    patterns: dict[str, Schema] = flat.get("patternProperties", {})
    if not patterns or set(grades := _grades(flat, scope)) <= {"exact"}:
        return flat
    pointers = origins_of(flat, "patternProperties")
    properties = dict(flat.get("properties", {}))
    rewritten: dict[str, Schema] = {}
    try:
        if len(patterns) > _PATTERNS:
            raise GiveUp(f"more than {_PATTERNS} patterns of names")
        check_names(flat, properties)
        for name, below in properties.items():
            for pattern, other in patterns.items():
                properties[name] = below = intersect(below, other) if matches(pattern, name) else below
        for count in range(1, len(patterns) + 1):
            for chosen in combinations(patterns, count):
                names = [name for name in properties if all(matches(key, name) for key in chosen)]
                text = single_pattern(chosen, [key for key in patterns if key not in chosen], names)
                if text is not None:
                    rewritten[text] = reduce(intersect, (patterns[key] for key in chosen))
    except (GiveUp, RegexError) as error:
        if not set(grades) <= {"exact", "tight"}:
            scope.leave(pointers, f"a mask cannot express the names: {error}")
        return flat
    scope.note(
        pointers, "rewritten: patterns that exclude each other, in a form that the back end reads correctly"
    )
    flat = put(flat, "properties", properties, pointers) if properties else flat
    return put(flat, "patternProperties", rewritten) if rewritten else without(flat, "patternProperties")


def _grades(flat: Flat, scope: Scope) -> list[Grade]:
    """Return the back end's grades of the patterns, and of names that several patterns match."""
    return [
        SUPPORT[scope.backend].grade(shape)
        for keyword, shape in shapes_of(flat)
        if keyword == "patternProperties" and "+" not in shape and not shape.endswith((":open", ":false"))
    ]


_PLACES = 8  # limit of positions of the item of `contains`
_LISTED_ARRAYS = 500  # limit of arrays of distinct values, in all orders


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
    flat = put(flat, "maxItems", kept, origins_of(flat, keyword))
    return put(flat, "prefixItems", heads[:kept]) if kept < len(heads) else flat


def rewrite_unique(flat: Flat, scope: Scope) -> Flat:
    """Rewrite uniqueItems if the items have listed values."""
    if not flat.get("uniqueItems"):
        return flat
    pointers = origins_of(flat, "uniqueItems")
    if flat.get("maxItems", 2) <= 1:
        scope.note(pointers, "rewritten: with at most one item there is nothing to compare")
        return without(flat, "uniqueItems")
    items = flat.get("items")
    is_plain = flat.get("type") == "array" and not {"prefixItems", "contains"} & flat.keys()
    if not isinstance(items, dict) or not is_plain:
        return flat
    values = list({json_key(value): value for value in reversed(_values(items))}.values())[::-1]
    least, most = flat.get("minItems", 0), min(len(values), flat.get("maxItems", len(values)))
    if not values or least > most:
        return flat
    if scope.backend == "llguidance" and len(values) <= MAX_ONCE:
        scope.note(pointers, "rewritten: a rule that keeps track of the items")
        return {**put(flat, "items", {"enum": values, AT: {"enum": origins(items)}}), MARK: "counted"}
    if sum(perm(len(values), count) for count in range(least, most + 1)) > _LISTED_ARRAYS:
        return flat
    listed = [list(order) for count in range(least, most + 1) for order in permutations(values, count)]
    scope.note(pointers, "rewritten: all arrays that it allows, listed")
    pointers |= origins(flat)
    return put({AT: {}}, "enum", listed, pointers)


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
    pointers = origins_of(flat, "contains")
    if flat.get("minContains") == 0:
        scope.note((*pointers, *origins_of(flat, "minContains")), "has no effect here")
        return [without(flat, "contains", "minContains")]
    heads, tail, wanted = flat.get("prefixItems", []), flat.get("items", True), flat["contains"]
    limit = flat.get("maxItems")
    if limit is None or limit > _PLACES or flat.get("type") != ["array"]:
        return [flat]
    scope.note((*pointers, *origins_of(flat, "minContains")), "rewritten: one branch for each place")
    bare = without(flat, "contains", "minContains", "prefixItems")
    branches = []
    for index in range(limit):
        here = [*heads[: index + 1], *[tail] * (index + 1 - len(heads))]
        here[index] = intersect(here[index], wanted)
        branch = put(
            bare, "prefixItems", [*here, *heads[index + 1 :]], (*pointers, *origins_of(flat, "prefixItems"))
        )
        branches.append(put(branch, "minItems", max(index + 1, flat.get("minItems", 0)), pointers))
    return branches


def _wanted(flat: Flat, scope: Scope) -> Flat | None:
    """Return the array with a counting rule for llguidance; None if impossible."""
    count, bound = flat.get("minContains", 1), max(flat.get("minItems", 0), flat.get("maxItems", 0))
    is_known = flat.keys() <= {"type", "items", "contains", "minContains", "minItems", "maxItems", AT}
    if scope.backend != "llguidance" or flat.get("type") != ["array"] or not is_known:
        return None
    if not 1 <= count <= min(MAX_ONCE, flat.get("maxItems", inf)) or bound > MAX_COUNT:
        return None
    scope.note(origins_of(flat, "contains", "minContains"), "rewritten: a rule that keeps track of the items")
    wanted = intersect(flat.get("items", True), flat["contains"])
    return {**put(flat, "contains", wanted, origins_of(flat, "items")), MARK: "counted"}


MAX_BRANCHED = 4  # properties, 24 branches; with 5, compiling takes 30 times as long as for one order
_MAX_PATTERNS = 8  # patterns of names
_BELOW = ("properties", "patternProperties", "additionalProperties")
_BOUNDS = ("minProperties", "maxProperties")
_KEYWORDS = frozenset(("type", "required", *_BELOW, *_BOUNDS, AT))
_OBJECT = frozenset(("type", "properties", "required", "patternProperties", "additionalProperties", AT))
_MAPS = ("properties", "patternProperties")


def mark_any_order(flat: Flat, scope: Scope) -> Flat:
    """Mark the object for llguidance, if its property names are distinguishable."""
    if not scope.any_order or scope.backend != "llguidance" or flat.get("type") != ["object"]:
        return flat
    if not any(isinstance(flat.get(key), dict) for key in _BELOW):
        return flat
    try:
        named = _declared_names(flat)
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
        _tell(flat, scope, "properties with free names come after the others")
    note = "rewritten: one branch for each order of the properties"
    scope.notes.update(dict.fromkeys(origins_of(flat, "properties"), note))
    scope.orders -= count
    scope.spend(count)
    below = {name: shared(branch) for name, branch in properties.items()}
    branches = [
        put(flat, "properties", {name: below[name] for name in order}) for order in permutations(below)
    ]
    # xgrammar merges branches that differ only in order.
    return [{**branch, "x-order": index} for index, branch in enumerate(branches)]


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


def _declared_names(flat: Flat) -> Flat:
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
    pointers = origins_of(flat, "patternProperties")
    flat = put(flat, "patternProperties", patterns) if patterns else without(flat, "patternProperties")
    return put(flat, "properties", properties, pointers)


def _names_apart(flat: Flat, scope: Scope) -> Flat:
    """Return the object with disjoint patterns that match no declared name, and no other names.

    Raises GiveUp or RegexError if that is impossible.
    """
    names, patterns = list(flat.get("properties", ())), dict(flat.get("patternProperties", {}))
    if not patterns:
        return flat
    if len(patterns) > _MAX_PATTERNS or not are_apart(tuple(patterns)):
        raise GiveUp("its patterns match the same names, or are many")
    others_schema = flat.get("additionalProperties", True)
    disjoint: dict[str, Schema] = {}
    for pattern, below in patterns.items():
        taken = [name for name in names if matches(pattern, name)]
        is_kept = others_schema is False and not taken and is_exact(pattern, scope)
        text = pattern if is_kept else single_pattern([pattern], (), taken)
        disjoint |= {} if text is None else {text: below}
    if others_schema is not False:
        others = single_pattern([r"^[\s\S]*$"], patterns, names)
        disjoint |= {} if others is None else {others: others_schema}
    return put(put(flat, "patternProperties", disjoint), "additionalProperties", False)


def settle_marks(schema: Flat, scope: Scope) -> Flat:
    """Return the schema with marks only where llguidance supports them."""
    defs: dict[str, Any] = dict(schema.get("$defs", {}))
    root = {key: value for key, value in schema.items() if key != "$defs"}
    lost: set[str] = set()  # definitions that llguidance reaches from a part in JSON Schema
    while True:
        walk = _MarkSettler(leading({name: below for name, below in defs.items() if name not in lost}), scope)
        settled = {
            name: walk.dropped(below) if name in lost else walk.settle(below) for name, below in defs.items()
        }
        whole = {**walk.settle(root), **({"$defs": settled} if settled else {})}
        if walk.lost <= lost:
            return whole
        lost |= walk.lost


class _MarkSettler:
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
        return changed_below(schema, self.settle, _MAPS, VALUE_LISTS, VALUE_SINGLE)

    def dropped(self, schema: Any) -> Any:
        """Return the schema without marks; definitions it refers to lose theirs in the next traversal."""
        self.lost.update(references(schema))
        self.scope.narrow(_in_any_order(schema), "in the schema's order, because the part around it is")
        return unmarked(schema)


def _in_any_order(schema: Any) -> Iterator[str]:
    """Yield the origins of objects that lose the mark for any order."""
    if isinstance(schema, dict):
        if schema.get(MARK) == "any-order":
            yield from origins_of(schema, *_MAPS)
        for below in subschemas(schema):
            yield from _in_any_order(below)
