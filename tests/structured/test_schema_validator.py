"""The final check says what is wrong and where, as the drafts mean it, and ends in time."""

from decimal import Decimal

from gencli.json_text import DOCUMENT, parse_json
from gencli.structured.json_schema import DRAFTS
from gencli.structured.schema_validator import Validator

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer"},
        "a/b": {"enum": [1, "x"]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_a_fault_has_its_place_and_its_reason():
    for value, faults in [
        ({"name": "Ada", "age": 36, "a/b": 1.0}, []),
        (5, ['the root: 5 is not of type "object"']),
        ({}, ["the root: 'name', 'age' are missing"]),
        ({"name": "A", "age": 1}, ['/name: "A" has fewer than 2 characters']),
        ({"name": "Ada", "age": 1.5}, ['/age: 1.5 is not of type "integer"']),
        ({"name": "Ada", "age": True}, ['/age: true is not of type "integer"']),
        ({"name": "Ada", "age": 1, "a/b": True}, ['/a~1b: true is none of [1,"x"]']),
        ({"name": "Ada", "age": 1, "z": [1]}, ["/z: [1] is where nothing is allowed"]),
    ]:
        assert list(Validator(PERSON).faults(value)) == faults, value
    is_one = {"properties": {"k": {"const": 1}}, "required": ["k"], "type": "object"}
    assert Validator({"anyOf": [{"type": "null"}, is_one]}).faults({"k": 2}) == (
        'the root: {"k":2} fits none of the 2 alternatives of anyOf; of the nearest, /k: 2 is not 1',
    )


def test_values_are_judged_as_json_means_them():
    for schema, value, is_valid in [
        ({"multipleOf": 0.1}, 0.3, True),
        ({"multipleOf": 0.1}, 0.35, False),
        ({"multipleOf": 0.01}, 19.99, True),
        ({"multipleOf": 3}, Decimal("1e400"), False),
        ({"type": "integer"}, 1.0, True),
        ({"type": "integer"}, Decimal("1e400"), True),
        ({"type": "integer"}, Decimal("1.00000000000000000001"), False),
        ({"type": "number"}, Decimal("1e400"), True),
        ({"maximum": 1e300}, Decimal("1e400"), False),
        ({"enum": [[1, {"a": 0}]]}, [1.0, {"a": 0}], True),
        ({"enum": [[1]]}, [True], False),
        ({"uniqueItems": True}, [1, True, "1", [1], [True], {"a": 1}], True),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}], False),
        ({"pattern": r"^\d$"}, "٣", False),
        ({"pattern": "^a$"}, "a\n", False),
        ({"pattern": "b"}, "abc", True),
        ({"maxLength": 1}, "😀", True),
        ({"patternProperties": {r"^\w$": False}}, {"é": 1}, True),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"ab": 1}, True),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"b": 1}, False),
    ]:
        assert (Validator(schema).faults(value) == ()) is is_valid, schema


UNEVALUATED = {
    "type": "object",
    "properties": {"a": {}},
    "allOf": [{"patternProperties": {"^b": {}}}, {"$ref": "#/$defs/c"}],
    "anyOf": [{"properties": {"d": {"type": "integer"}}, "required": ["d"]}, True],
    "if": {"required": ["e"], "properties": {"e": {}}},
    "then": {"properties": {"f": {}}},
    "dependentSchemas": {"a": {"properties": {"g": {}}}},
    "unevaluatedProperties": False,
    "$defs": {"c": {"properties": {"c": {}}}},
}


def test_unevaluated_properties_are_those_no_part_has_judged():
    for value, is_valid in [
        ({"a": 1, "bx": 1, "c": 1}, True),
        ({"d": 1}, True),
        ({"d": "x"}, False),
        ({"e": 1, "f": 1}, True),
        ({"f": 1}, False),
        ({"a": 1, "g": 1}, True),
        ({"g": 1}, False),
    ]:
        assert (Validator(UNEVALUATED).faults(value) == ()) is is_valid, value


def test_recursion_stays_with_our_rules_in_every_draft():
    for draft in DRAFTS:
        schema = {"$schema": draft.uri, "additionalProperties": {"$ref": "#"}, "pattern": "^a$"}
        assert Validator(schema).faults({"x": {"y": "a"}}) == (), draft
        assert Validator(schema).faults({"x": {"y": "a\n"}}) == (
            '/x/y: "a\\n" does not match the pattern "^a$"',
        ), draft


def test_old_drafts_keep_their_meaning():
    four = {"$schema": DRAFTS[-1].uri, "minimum": 1, "exclusiveMinimum": True}
    assert Validator(four).faults(1) == ("the root: 1 is not above 1",)
    seven = {"$schema": DRAFTS[2].uri, "items": [{"type": "null"}], "additionalItems": False}
    assert Validator(seven).faults([None, 1]) == ("/1: 1 is where nothing is allowed",)


def test_what_takes_without_end_or_is_too_deep_is_a_fault():
    either = {"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, "type": "array"}
    deep = {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"items": {"$ref": "#"}}]}}}
    for schema, value in [
        ({"pattern": "^(a|aa)+$"}, "a" * 5000 + "!"),
        (either, parse_json("[" * 60 + "1" + "]" * 60)),
    ]:
        (fault,) = Validator(schema, max_seconds=0.1).faults(value)
        assert "more than 0.1 s" in fault, schema
    (fault,) = Validator(deep).faults(parse_json("[" * DOCUMENT.max_depth + "1" + "]" * DOCUMENT.max_depth))
    assert "too deep" in fault


def test_the_schema_itself_is_left_alone():
    schema = {"$schema": DRAFTS[0].uri, "properties": {"a": False}}
    Validator(schema)
    assert schema == {"$schema": DRAFTS[0].uri, "properties": {"a": False}}
