"""Rewriting of object and array keywords, and marks of objects and arrays that are written in Lark for
llguidance. For llguidance an object with properties in any order gets a mark; schemas that contain a
mark are written in Lark too, or the mark is removed. For xgrammar such an object gets a branch for each
order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from itertools import combinations, permutations
from math import factorial, inf, perm
from typing import Any

from gencli.structured.audit import shapes_of
from gencli.structured.flat_schema import (
    AT,
    SUPPORT,
    Flat,
    Schema,
    Scope,
    check_names,
    intersect,
    matches,
    origins,
    origins_of,
    property_schema,
    put,
    without,
)
from gencli.structured.grammar_tree import RegexError
from gencli.structured.pattern_sets import finite_texts, texts_without
from gencli.structured.rewrite_strings import are_apart, is_exact, single_pattern
from gencli.structured.schema_errors import GiveUp
from gencli.structured.schema_validator import canonical
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
    declared = _declared(_patterned(_finite(_named(_listed(flat, scope), scope), scope), scope))
    if declared is None:
        return []
    closed = mark_any_order(_closed(declared, scope), scope)
    return [closed] if MARK in closed else _counted(closed, scope)


def _declared(flat: Flat) -> Flat | None:
    """Declare every required property; None if one of them allows no value."""
    properties = dict(flat.get("properties", {}))
    for name in flat.get("required", ()):
        if name not in properties:
            properties[name] = property_schema(flat, name)
        if properties[name] is False:
            return None
    if len(properties) == len(flat.get("properties", {})):
        return flat
    return put(flat, "properties", properties, origins_of(flat, "required"))


def _closed(flat: Flat, scope: Scope) -> Flat:
    """Forbid additional properties if the schema does not mention them."""
    num_declared = sum(below is not False for below in flat.get("properties", {}).values())
    is_silent = "additionalProperties" not in flat and not scope.request.extra
    if is_silent and num_declared >= max(1, flat.get("minProperties", 0)):
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
    if flat.get("additionalProperties") is not False:
        return flat
    written: dict[str, Schema] = flat.get("patternProperties", {})
    patterns: dict[str, Schema] = {text: below for text, below in written.items() if below is not False}
    if len(patterns) < len(written):
        flat = put(flat, "additionalProperties", False, origins_of(flat, "patternProperties"))
        flat = _with_patterns(flat, patterns)
    free = {name for name in dead if not any(matches(pattern, name) for pattern in patterns)}
    if not free:
        return flat
    return put(flat, "properties", {name: properties[name] for name in properties if name not in free})


def _with_patterns(flat: Flat, patterns: dict[str, Schema]) -> Flat:
    return put(flat, "patternProperties", patterns) if patterns else without(flat, "patternProperties")


def _counted(flat: Flat, scope: Scope) -> list[Flat]:
    """Rewrite minProperties and maxProperties of a closed object as sets of properties, if these are few."""
    keys = [key for key in ("minProperties", "maxProperties") if key in flat]
    required = dict.fromkeys(flat.get("required", []))
    optional = [name for name in flat.get("properties", {}) if name not in required]
    is_closed = flat.get("additionalProperties") is False and not flat.get("patternProperties")
    if not keys or not is_closed:
        return [flat]
    pointers = origins_of(flat, *keys)
    least, limit = flat.get("minProperties", 0), flat.get("maxProperties", len(required) + len(optional))
    bare = without(flat, *keys)
    if least <= len(required) and limit >= len(required) + len(optional):
        scope.note(pointers, "has no effect here")
        return [bare]
    branches = _sets(optional, least - len(required), limit - len(required))
    if branches is None:
        return [flat]
    scope.note(pointers, "rewritten: one branch for each set of properties")
    flats = []
    for must, never in branches:
        properties = {name: below for name, below in bare.get("properties", {}).items() if name not in never}
        branch, needed = put(bare, "properties", properties, pointers), [*bare.get("required", []), *must]
        flats.append(put(branch, "required", needed, pointers) if needed else branch)
    return flats


def _sets(optional: list[str], least: int, limit: int) -> list[tuple[list[str], list[str]]] | None:
    """Return (required, forbidden) names of each branch; None if there are too many branches."""
    if least <= 0 and limit == 1:
        return [([], optional), *(([name], [each for each in optional if each != name]) for name in optional)]
    if least == 1 and limit >= len(optional):  # the first present property distinguishes the branches
        branches = [([name], optional[:index]) for index, name in enumerate(optional)]
    elif len(optional) > 12:
        return None
    else:
        counts = range(max(least, 0), min(limit, len(optional)) + 1)
        sets = (chosen for count in counts for chosen in combinations(optional, count))
        branches = [(list(chosen), [name for name in optional if name not in chosen]) for chosen in sets]
    return branches if len(branches) <= _BRANCHES else None


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
    declared = [name for name in flat.get("properties", {}) if name in listed]
    properties = {name: property_schema(flat, name) for name in (*declared, *listed)}
    scope.note(pointers, "rewritten: optional properties with these names")
    more = origins_of(flat, "patternProperties", "additionalProperties")
    bare = without(flat, "propertyNames", "patternProperties")
    named = put(bare, "properties", properties, pointers | more)
    closed = put(named, "additionalProperties", False, pointers)
    scope.unsatisfiable.update(origins(flat) - origins(closed))  # of properties with other names
    return closed


def _finite(flat: Flat, scope: Scope, limit: int = _LISTED) -> Flat:
    """Rewrite patternProperties that match few names as optional properties with these names."""
    patterns: dict[str, Schema] = flat.get("patternProperties", {})
    listed = {key: names for key in patterns if (names := finite_texts(key, limit)) is not None}
    if not listed:
        return flat
    pointers = origins_of(flat, "patternProperties")
    properties = dict(flat.get("properties", {}))
    for key, names in listed.items():
        for name in names:
            properties[name] = intersect(properties.get(name, True), patterns[key])
    scope.note(pointers, "rewritten: optional properties with the names that a pattern matches")
    flat = put(flat, "properties", properties, pointers)
    return _with_patterns(flat, {key: below for key, below in patterns.items() if key not in listed})


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
    others = flat.get("additionalProperties", True)
    declared = flat.get("properties", {}).items()
    properties = {name: below if matches(pattern, name) else False for name, below in declared}
    flat = put(flat, "properties", properties, pointers) if properties else flat
    more = pointers | origins(names) | origins_of(flat, "additionalProperties")
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
    # The back end's grades of the patterns, and of names that several patterns match.
    grades = {
        SUPPORT[scope.backend].grade(shape)
        for keyword, shape in (shapes_of(flat) if patterns else ())
        if keyword == "patternProperties" and "+" not in shape and not shape.endswith((":open", ":false"))
    }
    if grades <= {"exact"}:
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
        if not grades <= {"exact", "tight"}:
            scope.leave(pointers, f"a mask cannot express the names: {error}")
        return flat
    note = "rewritten: patterns that exclude each other, in a form that the back end reads correctly"
    scope.note(pointers, note)
    return _with_patterns(put(flat, "properties", properties, pointers) if properties else flat, rewritten)


_PLACES = 8  # limit of positions of the item of `contains`
_LISTED_ARRAYS = 500  # limit of arrays of distinct values, in all orders


def rewrite_array(flat: Flat, scope: Scope) -> list[Flat]:
    """Return flat schemas, one of which has to hold."""
    heads = flat.get("prefixItems", [])
    kept = heads.index(False) if False in heads else len(heads)
    is_cut = kept < len(heads)
    if (is_cut or flat.get("items") is False) and flat.get("maxItems", inf) > kept:
        # An item that allows no value bounds the number of items.
        flat = put(flat, "maxItems", kept, origins_of(flat, "prefixItems" if is_cut else "items"))
        flat = put(flat, "prefixItems", heads[:kept]) if is_cut else flat
    return _contains(flat, scope) if flat.get("minItems", 0) <= flat.get("maxItems", inf) else []


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
    values = list({canonical(value): value for value in reversed(_values(items))}.values())[::-1]
    counts = range(flat.get("minItems", 0), min(len(values), flat.get("maxItems", len(values))) + 1)
    if not values or not counts:
        return flat
    if scope.backend == "llguidance" and len(values) <= MAX_ONCE:
        scope.note(pointers, "rewritten: a rule that keeps track of the items")
        return {**put(flat, "items", {"enum": values, AT: {"enum": origins(items)}}), MARK: "counted"}
    if sum(perm(len(values), count) for count in counts) > _LISTED_ARRAYS:
        return flat
    listed = [list(order) for count in counts for order in permutations(values, count)]
    scope.note(pointers, "rewritten: all arrays that it allows, listed")
    return put({AT: {}}, "enum", listed, pointers | origins(flat))


def _values(items: Flat) -> list[Any]:  # [] if they are not listed
    if items.keys() == {"type", AT} and items["type"] in ("boolean", "null"):
        return [True, False] if items["type"] == "boolean" else [None]
    return list(items["enum"]) if items.keys() == {"enum", AT} else []


def _contains(flat: Flat, scope: Scope) -> list[Flat]:
    """Return one flat schema for each possible position of the item of `contains`."""
    if "contains" not in flat or "maxContains" in flat:
        return [flat]
    heads, tail, wanted = flat.get("prefixItems", []), flat.get("items", True), flat["contains"]
    limit, count, is_array = (
        flat.get("maxItems", inf),
        flat.get("minContains", 1),
        flat.get("type") == ["array"],
    )
    pointers, both = origins_of(flat, "contains"), origins_of(flat, "contains", "minContains")
    is_small = max(flat.get("minItems", 0), flat.get("maxItems", 0)) <= MAX_COUNT
    has_rule = flat.keys() <= {"type", "items", "contains", "minContains", "minItems", "maxItems", AT}
    if (
        scope.backend == "llguidance"
        and is_array
        and has_rule
        and 1 <= count <= min(MAX_ONCE, limit)
        and is_small
    ):
        scope.note(both, "rewritten: a rule that keeps track of the items")
        counted = put(flat, "contains", intersect(tail, wanted), origins_of(flat, "items"))
        return [{**counted, MARK: "counted"}]
    if count == 0:
        scope.note(both, "has no effect here")
        return [without(flat, "contains", "minContains")]
    if count > 1 or limit > _PLACES or not is_array:
        return [flat]
    scope.note(both, "rewritten: one branch for each place")
    bare = without(flat, "contains", "minContains", "prefixItems")
    branches = []
    for index in range(limit):
        here = [*heads[: index + 1], *[tail] * (index + 1 - len(heads))]
        here[index] = intersect(here[index], wanted)
        items = [*here, *heads[index + 1 :]]
        branch = put(bare, "prefixItems", items, pointers | origins_of(flat, "prefixItems"))
        branches.append(put(branch, "minItems", max(index + 1, flat.get("minItems", 0)), pointers))
    return branches


MAX_BRANCHED = 4  # properties, 24 branches; with 5, compiling takes 30 times as long as for one order
_MAX_PATTERNS = 8  # patterns of names
_FEW = 16  # limit of the names of a pattern that may come in any order
_BELOW = ("properties", "patternProperties", "additionalProperties")
_BOUNDS = ("minProperties", "maxProperties")
_KEYWORDS = frozenset(("type", "required", *_BELOW, *_BOUNDS, AT))
_OBJECT = frozenset(("type", "properties", "required", "patternProperties", "additionalProperties", AT))
_MAPS = ("properties", "patternProperties")


def mark_any_order(flat: Flat, scope: Scope) -> Flat:
    """Mark the object for llguidance, if its property names are distinguishable."""
    if not scope.request.any_order or scope.backend != "llguidance" or flat.get("type") != ["object"]:
        return flat
    if not any(isinstance(flat.get(key), dict) for key in _BELOW):
        return flat
    try:
        # Declared properties would forbid additional ones if the schema does not mention these.
        named = _finite(flat, scope, _FEW) if "additionalProperties" in flat else flat
        names, bounds = named.get("properties", ()), [named[key] for key in _BOUNDS if key in named]
        is_open = bool(named.get("patternProperties")) or named.get("additionalProperties") is not False
        if more := named.keys() - _KEYWORDS:
            raise GiveUp(f"{min(more)} is not known in any other")
        if len(names) > (limit := MAX_ONCE if bounds else MAX_UNCOUNTED):
            raise GiveUp(f"there are more than {limit} properties")
        if max(bounds, default=0) > (MAX_BOUND if is_open else MAX_COUNT):
            raise GiveUp("it has a large number of properties")
        return {**_names_apart(named, scope), MARK: "any-order"}
    except (GiveUp, RegexError) as error:
        _tell(flat, scope, f"in the schema's order: {error}")
        return flat


def branch_orders(flat: Flat, scope: Scope, shared: Callable[[Schema], Schema]) -> list[Flat]:
    """Return the object once for each order of its properties, for xgrammar, if the orders are few.

    `shared` returns a named reference to a schema that several branches use. Additional properties stay last.
    """
    properties = flat.get("properties", {})
    is_open = flat.get("additionalProperties") is not False or bool(flat.get("patternProperties"))
    num_named = sum(below is not False for below in properties.values())
    is_object = flat.get("type") in ("object", ["object"])
    has_orders = is_object and num_named > 0 and num_named + is_open > 1
    if not scope.request.any_order or scope.backend != "xgrammar" or not has_orders:
        return [flat]
    count = factorial(min(len(properties), MAX_BRANCHED + 1))
    if len(properties) > MAX_BRANCHED or count > scope.orders:
        many = f"there are more than {MAX_BRANCHED} properties, or too many such objects"
        _tell(flat, scope, f"in the schema's order: {many}")
        return [flat]
    if is_open:
        _tell(flat, scope, "properties with free names come after the others")
    note = "rewritten: one branch for each order of the properties"
    scope.notes.update(dict.fromkeys(origins_of(flat, "properties"), note))
    scope.orders -= count
    scope.spend(count)
    below = {name: shared(branch) for name, branch in properties.items()}
    orders = [{name: below[name] for name in order} for order in permutations(below)]
    # xgrammar merges branches that differ only in order.
    return [{**put(flat, "properties", order), "x-order": index} for index, order in enumerate(orders)]


def _tell(flat: Flat, scope: Scope, text: str) -> None:
    scope.narrow(next(flat[AT][key] for key in _BELOW if key in flat[AT]), text)


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
        settled = {name: (walk.dropped if name in lost else walk.settle)(defs[name]) for name in defs}
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
            with suppress(GiveUp, RegexError):
                return self.inside({**_names_apart(schema, self.scope), MARK: "in-order"})
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
