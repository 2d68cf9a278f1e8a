"""xgrammar where it is exact, else llguidance where that is, else the one that enforces more."""

import json

from gencli.structured.backend_choice import choose
from gencli.structured.output_spec import PlanRequest
from gencli.structured.schema_errors import SchemaError
from tests.helpers.refusal import refusal

INT = {"type": "integer"}
EXACT_IN_BOTH = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
EXACT_IN_LLGUIDANCE = {"type": "string", "maxLength": 5}
EXACT_IN_NONE = {"type": "array", "items": {"type": "string", "maxLength": 5}, "uniqueItems": True}


def order(plan):
    return [variant.constraint.backend for variant in plan.variants]


def test_the_choice_and_its_reason():
    for schema, first, reason in [
        (EXACT_IN_BOTH, "xgrammar", "xgrammar enforces all of this schema."),
        (EXACT_IN_LLGUIDANCE, "llguidance", "llguidance enforces all of this schema, xgrammar does not: "),
        (
            EXACT_IN_NONE,
            "llguidance",
            "No back end enforces all of this schema, llguidance more of it: uniqueItems at ",
        ),
    ]:
        plan = choose(schema)
        assert order(plan)[0] == first, schema
        assert set(order(plan)) == {"xgrammar", "llguidance"}, schema
        assert plan.reason.startswith(reason), schema
        assert plan.schema == schema, schema
    assert order(choose(EXACT_IN_LLGUIDANCE, PlanRequest("xgrammar"))) == ["xgrammar"]
    assert {
        variant.constraint.whitespace for variant in choose(EXACT_IN_BOTH, PlanRequest(whitespace=2)).variants
    } == {2}


def test_without_rewriting_the_schema_goes_as_it_stands():
    plan = choose(EXACT_IN_BOTH, PlanRequest(rewrite=False))
    assert json.loads(plan.variants[0].constraint.text) == EXACT_IN_BOTH
    unique = choose(EXACT_IN_NONE, PlanRequest("llguidance", rewrite=False)).variants[0]
    assert "uniqueItems" not in json.loads(unique.constraint.text)  # it makes no grammar of it
    assert [one.pointer for one in unique.audit.open] == ["/uniqueItems"]


def test_what_nothing_satisfies_is_refused():
    for schema in [
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"enum": [1, 2], "minimum": 3},
    ]:
        assert "Nothing satisfies" in refusal(SchemaError, choose, schema), schema
    assert "nothing is fetched" in refusal(SchemaError, choose, {"$ref": "https://example.com/schema.json"})


def test_a_deep_schema_is_left_as_it_is():
    schema = {"type": "integer"}
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    plan = choose(schema, PlanRequest("llguidance"))
    assert json.loads(plan.variants[0].constraint.text) == schema


def test_what_cannot_be_rewritten_spoils_nothing_around_it():
    pairs = [{"anyOf": [{"required": [f"a{index}"]}, {"required": [f"b{index}"]}]} for index in range(12)]
    schema = {
        "type": "object",
        "properties": {"x": {"not": {"type": "null"}}, "y": {"type": "object", "allOf": pairs}},
    }
    found = json.loads(choose(schema, PlanRequest("llguidance")).variants[0].constraint.text)
    assert "not" not in found["properties"]["x"]
    assert found["properties"]["y"]["allOf"] == pairs


def test_what_is_no_keyword_of_the_draft_is_not_understood_but_remarks_are():
    for schema, left in [
        ({"type": "integer", "title": "a", "x-a": 1, "X-b": 2, "default": 3, "markdownDescription": ""}, []),
        ({"type": "integer", "colour": 3}, ["/colour"]),
        ({"type": "integer", "nullable": True}, ["/nullable"]),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "contains": {"type": "null"}}, ["/contains"]),
    ]:
        plan = choose(schema, PlanRequest("llguidance"))
        assert [one.pointer for one in plan.variants[0].audit.open if one.verdict == "unknown"] == left, (
            schema
        )
        assert ("that is understood" in choose(schema).reason) is (bool(left) and "$schema" not in schema), (
            schema
        )


def test_a_name_that_may_come_twice_is_left_to_the_final_check():
    for schema, places in [
        ({"type": "object"}, [""]),
        (
            {"properties": {"a": {"type": "object", "additionalProperties": INT}}, "type": "object"},
            ["/properties/a"],
        ),
        ({"type": "object", "patternProperties": {"^a": INT}, "additionalProperties": False}, [""]),
        ({"type": "array"}, [""]),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, []),
        ({"type": "array", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"enum": [{}]}}}, []),
        ({"type": "object", "additionalProperties": INT, "maxProperties": 1}, []),
    ]:
        plan = choose(schema)
        left = [one.pointer for one in plan.variants[0].audit.open if one.keyword == "unique names"]
        assert left == places, schema
        assert ("except that free names may come twice" in plan.reason) is bool(places), schema
