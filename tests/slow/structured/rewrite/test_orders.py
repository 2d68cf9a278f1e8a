"""With `any` properties come in any order; required ones have to, none comes twice."""

import json

from gencli.structured.backend_choice import choose
from tests.structured.rewrite.test_orders import INNER, OBJECT, PROPERTIES, VALUES, I, O, S, accepts, shuffled


def test_many_small_objects_do_not_grow_without_bound():
    large = {
        f"o{n}": {**OBJECT, "title": str(n), "properties": {**PROPERTIES, f"p{n}": {}}} for n in range(300)
    }
    few = {f"o{n}": {**INNER, "required": [], "properties": {f"x{n}": {}, "y": {}}} for n in range(2_000)}
    for properties in (large, few):
        plan = choose({"type": "object", "properties": properties}, any_order=True)
        assert all(len(variant.constraint.text) < 1 << 20 for variant in plan.variants)


DEEP = {
    "$defs": {
        "tree": {
            **O,
            "properties": {
                "name": S,
                "size": I,
                "below": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            },
            "required": ["name", "size"],
        }
    },
    **O,
    "properties": {
        "pair": {"type": "array", "prefixItems": [S, INNER], "items": False, "minItems": 2},
        "long": {"type": "array", "prefixItems": [{}] * 40, "items": INNER, "minItems": 41, "maxItems": 42},
        "either": {"anyOf": [{"type": "null"}, INNER, {"$ref": "#/$defs/tree"}]},
        "named": {**O, "patternProperties": {"^x-": {"$ref": "#/$defs/tree"}}, "additionalProperties": False},
        "tree": {"$ref": "#/$defs/tree"},
        "free": {**O, "properties": {"id": I}, "additionalProperties": INNER},
    },
}


TREE = {"name": "a", "size": 1, "below": [{"name": "b", "size": 2, "below": []}]}


WHOLE = {
    "pair": ["a", VALUES["c"]],
    "long": [1] * 40 + [VALUES["c"]] * 2,
    "either": TREE,
    "named": {"x-a": TREE, "x-b": TREE},
    "tree": TREE,
    "free": {"id": 3, "more": VALUES["c"], "i": VALUES["c"]},
}


def test_any_order_reaches_into_lists_branches_references_and_free_names():
    for seed in range(8):
        check = accepts("llguidance", DEEP, any_order=True)
        assert check(json.dumps(shuffled(WHOLE, seed))), seed
        for wrong in (
            {**WHOLE, "pair": ["a"]},
            {**WHOLE, "long": [1] * 40},
            {**WHOLE, "long": [1] * 40 + [VALUES["c"]] * 3},
            {**WHOLE, "tree": {"size": 1}},
            {**WHOLE, "named": {"y": TREE}},
            {**WHOLE, "free": {"id": VALUES["c"]}},
        ):
            assert not check(json.dumps(shuffled(wrong, seed))), seed
