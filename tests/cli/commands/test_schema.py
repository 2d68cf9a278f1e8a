"""`gencli schema audit`: what it writes, and what it refuses."""

import json

import pytest

LEFT_OUT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "object", "enum": ["x"]}},
}
OLDER = {"$ref": "#/$defs/a", "$defs": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}}


@pytest.mark.parametrize(
    ("schema", "part"),
    [
        (LEFT_OUT, "/properties/b/enum: no value has all the types that are asked for"),
        (OLDER, "All of the schema is read as draft 2020-12"),
    ],
)
def test_remarks_stand_behind_the_table_and_in_the_json(gencli, schema, part):
    text = gencli("schema", "audit", json.dumps(schema))
    assert (text.code, text.err) == (0, "")
    assert part in text.out
    assert text.out.endswith(".\n")
    (remark,) = json.loads(gencli("schema", "audit", json.dumps(schema), "--format", "json").out)["remarks"]
    assert part in remark


@pytest.mark.parametrize("key", ["readonly", "decription", "$default", "Id"])
def test_a_key_that_looks_like_a_remark_is_told_and_not_refused(gencli, key):
    result = gencli("schema", "audit", json.dumps({"type": "string", key: "a"}))
    assert result.code == 0
    assert f"/{key}" in result.out
    assert "not understood" in result.out


def test_a_misspelled_constraint_is_refused_with_what_to_do(gencli):
    result = gencli("schema", "audit", json.dumps({"type": "string", "maxlength": 3}))
    assert (result.code, result.out) == (3, "")
    assert "/maxlength: 'maxlength' is no keyword; 'maxLength' is" in result.err
    assert "'x-maxlength'" in result.err


def test_a_run_tells_the_remarks_too(gencli):
    result = gencli("run", "-m", "fake", "--json-schema", json.dumps(LEFT_OUT), "x", "--max-tokens", "99")
    assert "/properties/b/enum: no value has all the types" in result.err


TWO = {"type": "object", "properties": {"a": {"enum": [1]}, "b": {"enum": [2]}}, "required": ["a", "b"]}


def test_an_audit_knows_the_order_of_properties(gencli):
    texts = [
        gencli("schema", "audit", json.dumps(TWO), "--property-order", order).out
        for order in ("schema", "any")
    ]
    assert ["each order of the properties" in text for text in texts] == [False, True]


def test_a_property_order_without_a_schema_is_refused(gencli):
    result = gencli("run", "-m", "fake", "--property-order", "any", "x")
    assert result.code == 2
    assert "--property-order needs" in result.err
