"""Each rewrite: the back end is wrong without it and right with it; any order of properties."""

import json

from gencli.structured.backend_choice import candidate, choose
from gencli.structured.output_spec import PlanRequest
from gencli.structured.rewrite_strings import LENGTHS
from gencli.structured.schema_validator import FORMATS
from tests.structured.probes.acceptor import acceptor
from tests.structured.test_rewrite import (
    CASES,
    INNER,
    LLGUIDANCE,
    ORDERED,
    ORDERED_VALUES,
    PROPERTIES,
    I,
    O,
    S,
    accepts,
    shuffled,
    verdict,
)

CASES |= {name: ("llguidance", *case) for name, case in LLGUIDANCE.items()}


def test_the_back_end_is_wrong_without_it_and_right_with_it():
    for name in CASES:
        backend, schema, valid, invalid = CASES[name]
        found = candidate(schema, backend, PlanRequest(extra=True))
        assert verdict(backend, schema, valid, invalid) != "right", name
        assert verdict(backend, json.loads(found.variant.constraint.text), valid, invalid) == "right", name
        assert found.is_exact, found.variant.audit.findings


ENDS = {
    "email": ("", "@a.de"),
    "idn-email": ("é", "@a.de"),
    "uri": ("https://a.de/", ""),
    "uri-reference": ("", ""),
    "json-pointer": ("/", ""),
    "relative-json-pointer": ("1/", ""),
    "duration": ("P1", "D"),
}


def test_a_format_does_not_go_on_for_ever_but_where_the_schema_gives_a_length():
    for name in sorted(LENGTHS):
        start, end = ENDS[name]
        within, over = (start + "1" * (count - len(start + end)) + end for count in (LENGTHS[name], 3_000))
        assert FORMATS[name](within), name
        assert FORMATS[name](over), name
        for more, allowed in (
            ({}, [True, False]),
            ({"minLength": 9}, [True, False]),
            ({"maxLength": 3_000}, [True, True]),
        ):
            found = candidate({**S, "format": name, **more}, "llguidance")
            check = acceptor("llguidance", json.loads(found.variant.constraint.text))
            assert [check(json.dumps(text, ensure_ascii=False)) for text in (within, over)] == allowed, name
            assert found.is_exact, name


def test_many_small_objects_do_not_grow_without_bound():
    large = {
        f"o{n}": {**ORDERED, "title": str(n), "properties": {**PROPERTIES, f"p{n}": {}}} for n in range(300)
    }
    few = {f"o{n}": {**INNER, "required": [], "properties": {f"x{n}": {}, "y": {}}} for n in range(1_200)}
    for properties in (large, few):
        plan = choose({"type": "object", "properties": properties}, PlanRequest(any_order=True))
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
    "pair": ["a", ORDERED_VALUES["c"]],
    "long": [1] * 40 + [ORDERED_VALUES["c"]] * 2,
    "either": TREE,
    "named": {"x-a": TREE, "x-b": TREE},
    "tree": TREE,
    "free": {"id": 3, "more": ORDERED_VALUES["c"], "i": ORDERED_VALUES["c"]},
}


def test_any_order_reaches_into_lists_branches_references_and_free_names():
    for seed in range(8):
        check = accepts("llguidance", DEEP, any_order=True)
        assert check(json.dumps(shuffled(WHOLE, seed))), seed
        for wrong in (
            {**WHOLE, "pair": ["a"]},
            {**WHOLE, "long": [1] * 40},
            {**WHOLE, "long": [1] * 40 + [ORDERED_VALUES["c"]] * 3},
            {**WHOLE, "tree": {"size": 1}},
            {**WHOLE, "named": {"y": TREE}},
            {**WHOLE, "free": {"id": ORDERED_VALUES["c"]}},
        ):
            assert not check(json.dumps(shuffled(wrong, seed))), seed
