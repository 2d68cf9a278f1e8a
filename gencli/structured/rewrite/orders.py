"""Properties in any order: for llguidance a mark, for xgrammar a branch for each order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import factorial

from gencli.structured.rewrite.meet import both, matches
from gencli.structured.rewrite.node import AT, Flat, GiveUp, Schema, Scope, put, without
from gencli.structured.rewrite.regex import RegexError
from gencli.structured.rewrite.strings import are_apart, is_exact, single_pattern
from gencli.structured.rewrite.words import listed
from processors.grammar.backends.bag import MAX_BOUND, MAX_COUNT, MAX_ONCE, MAX_UNCOUNTED
from processors.grammar.backends.json_lark import MARK

__all__ = ["MAX_BRANCHED", "in_branches", "marked", "names_apart"]

MAX_BRANCHED = 4  # properties: 24 branches; with 5 a compile takes 30 times as long as in one order
_MAX_PATTERNS = 8  # of names
_BELOW = ("properties", "patternProperties", "additionalProperties")
_BOUNDS = ("minProperties", "maxProperties")
_KEYWORDS = frozenset(("type", "required", *_BELOW, *_BOUNDS, AT))


def marked(flat: Flat, scope: Scope) -> Flat:
    """The object with the mark for llguidance, where its names can be told apart."""
    if not scope.any_order or scope.backend != "llguidance" or flat.get("type") != ["object"]:
        return flat
    if not any(isinstance(flat.get(key), dict) for key in _BELOW):
        return flat
    try:
        named = _declared(flat)
        _check_any_order(named)
        return {**names_apart(named, scope), MARK: "any-order"}
    except (GiveUp, RegexError) as error:
        _tell(flat, scope, f"in the schema's order: {error}")
        return flat


def in_branches(flat: Flat, scope: Scope, shared: Callable[[Schema], Schema]) -> list[Flat]:
    """For xgrammar the object once for each order of its properties, where they are few.

    `shared` gives a schema that stands in several branches a name. Additional properties stay last.
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
        _tell(flat, scope, "properties whose names are free come behind the others")
    scope.notes.update(
        dict.fromkeys(
            flat[AT].get("properties", ()), "rewritten: one branch for each order of the properties"
        )
    )
    scope.orders -= count
    scope.spend(count)
    below = {name: shared(one) for name, one in properties.items()}
    found = [put(flat, "properties", {name: below[name] for name in order}) for order in permutations(below)]
    # It takes branches that differ in nothing but their order for one.
    return [{**one, "x-order": index} for index, one in enumerate(found)]


def _has_one_order(flat: Flat) -> bool:
    """Whether its properties cannot change places."""
    if flat.get("type") not in ("object", ["object"]):
        return True
    is_open = flat.get("additionalProperties") is not False or flat.get("patternProperties")
    named = [name for name, below in flat.get("properties", {}).items() if below is not False]
    return len(named) + bool(is_open) < 2 or not named


def _tell(flat: Flat, scope: Scope, text: str) -> None:
    scope.narrow(next(flat[AT][key] for key in _BELOW if key in flat[AT]), text)


def _check_any_order(flat: Flat) -> None:
    """GiveUp unless the object can be written in any order."""
    names, bounds = flat.get("properties", ()), [flat[key] for key in _BOUNDS if key in flat]
    is_open = bool(flat.get("patternProperties")) or flat.get("additionalProperties") is not False
    if more := flat.keys() - _KEYWORDS:
        raise GiveUp(f"{min(more)} is not known in any other")
    if len(names) > (most := MAX_ONCE if bounds else MAX_UNCOUNTED):
        raise GiveUp(f"there are more than {most} properties")
    if max(bounds, default=0) > (MAX_BOUND if is_open else MAX_COUNT):
        raise GiveUp("it has a large number of properties")


def _declared(flat: Flat) -> Flat:
    """The object with names that a pattern lists among its properties."""
    if "additionalProperties" not in flat:  # which would close it
        return flat
    properties, patterns = dict(flat.get("properties", {})), dict(flat.get("patternProperties", {}))
    for pattern in list(patterns):
        if (names := listed(pattern)) is not None:
            below = patterns.pop(pattern)
            properties |= {name: both(properties.get(name, True), below) for name in names}
    if len(patterns) == len(flat.get("patternProperties", {})):
        return flat
    places = flat[AT].get("patternProperties", ())
    flat = put(flat, "patternProperties", patterns) if patterns else without(flat, "patternProperties")
    return put(flat, "properties", properties, places)


def names_apart(flat: Flat, scope: Scope) -> Flat:
    """The object with patterns that match no declared name, and no name that another one matches.

    Beside them there are no other names. GiveUp or RegexError where that cannot be said.
    """
    names, patterns = list(flat.get("properties", ())), dict(flat.get("patternProperties", {}))
    if not patterns:
        return flat
    if len(patterns) > _MAX_PATTERNS or not are_apart(tuple(patterns)):
        raise GiveUp("its patterns match the same names, or are many")
    rest = flat.get("additionalProperties", True)
    found: dict[str, Schema] = {}
    for pattern, below in patterns.items():
        taken = [name for name in names if matches(pattern, name)]
        is_kept = rest is False and not taken and is_exact(pattern, scope)
        text = pattern if is_kept else single_pattern([pattern], (), taken)
        found |= {} if text is None else {text: below}
    if rest is not False:
        others = single_pattern([r"^[\s\S]*$"], patterns, names)
        found |= {} if others is None else {others: rest}
    return put(put(flat, "patternProperties", found), "additionalProperties", False)
