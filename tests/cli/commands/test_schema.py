"""`gencli schema audit`: what it writes, and what it refuses."""

import json

LEFT_OUT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "object", "enum": ["x"]}},
}
OLDER = {"$ref": "#/$defs/a", "$defs": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}}


def test_remarks_stand_behind_the_table_in_the_json_and_are_told_by_a_run(gencli):
    for schema, part in [
        (LEFT_OUT, "/properties/b/enum: no value has all the types that are asked for"),
        (OLDER, "All of the schema is read as draft 2020-12"),
    ]:
        text = gencli("schema", "audit", json.dumps(schema))
        assert (text.code, text.err) == (0, ""), schema
        assert part in text.out, schema
        assert text.out.endswith(".\n"), schema
        (remark,) = json.loads(gencli("schema", "audit", json.dumps(schema), "--format", "json").out)[
            "remarks"
        ]
        assert part in remark, schema

    result = gencli("run", "-m", "fake", "--json-schema", json.dumps(LEFT_OUT), "x", "--max-tokens", "99")
    assert "/properties/b/enum: no value has all the types" in result.err


def test_keys_that_look_like_remarks_are_told_and_misspelled_constraints_refused(gencli):
    for key in ["readonly", "decription", "$default", "Id"]:
        result = gencli("schema", "audit", json.dumps({"type": "string", key: "a"}))
        assert result.code == 0, key
        assert f"/{key}" in result.out, key
        assert "not understood" in result.out, key

    result = gencli("schema", "audit", json.dumps({"type": "string", "maxlength": 3}))
    assert (result.code, result.out) == (3, "")
    assert "/maxlength: 'maxlength' is no keyword; 'maxLength' is" in result.err
    assert "'x-maxlength'" in result.err


TWO = {"type": "object", "properties": {"a": {"enum": [1]}, "b": {"enum": [2]}}, "required": ["a", "b"]}


def test_an_audit_knows_the_order_of_properties(gencli):
    texts = [
        gencli("schema", "audit", json.dumps(TWO), "--property-order", order).out
        for order in ("schema", "any")
    ]
    assert ["each order of the properties" in text for text in texts] == [False, True]

    result = gencli("run", "-m", "fake", "--property-order", "any", "x")
    assert result.code == 2
    assert "--property-order needs" in result.err
