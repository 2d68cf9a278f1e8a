"""A schema or a path that cannot be used is refused before a run, with the place and the reason."""

import itertools
from dataclasses import dataclass, field

import pytest

from gencli.json_text import DOCUMENT
from gencli.structured.backend_choice import choose
from gencli.structured.json_schema import DRAFTS
from gencli.structured.output_spec import PlanRequest
from gencli.structured.schema_check import MAX_BYTES, check_schema, likely_keywords, misspelled, unreached
from gencli.structured.schema_errors import Deadline, OutOfTime, SchemaError
from tests.helpers.refusal import refusal

DRAFT = {draft.name: draft.uri for draft in DRAFTS}
OBJECT = {"type": "object"}

REFUSED = [
    ({"type": "strin"}, "/type", "no type; there are array"),
    ({"type": []}, "/type", "no type"),
    ({"minLength": -1}, "/minLength", "below the minimum 0"),
    ({"required": True}, "/required", 'not of type "array"'),
    ({"properties": {"a": {"items": 5}}}, "/properties/a/items", "not of type"),
    ({"items": [{}], "prefixItems": [{}]}, "/items", "not of type"),
    ({"multipleOf": 0}, "/multipleOf", "not above 0"),
    ({"$schema": DRAFT["4"], "exclusiveMinimum": True}, "/exclusiveMinimum", "it needs minimum"),
    ({"$schema": DRAFT["4"], "exclusiveMinimum": 5}, "/exclusiveMinimum", 'not of type "boolean"'),
    ({"$schema": "http://json-schema.org/draft-03/schema#"}, "/$schema", "is not a known draft"),
    (
        {"$schema": DRAFT["7"], "definitions": {"a": {"$schema": DRAFT["2019-09"]}}},
        "/definitions/a/$schema",
        "a newer draft",
    ),
    ({"$defs": {"a": {"$schema": "http://example.com/draft"}}}, "/$defs/a/$schema", "is not a known draft"),
    ({"requierd": ["a"]}, "/requierd", "'required' is"),
    ({"properties": {"a": {"minlength": 3}}}, "/properties/a/minlength", "'minLength' is"),
    ({"ref": "#"}, "/ref", "'$ref' is"),
    ({"tpye": "object"}, "/tpye", "'type' is"),
    ({"enums": []}, "/enums", "'enum' is"),
    ({"pattern": "("}, "/pattern", "no regular expression"),
    ({"patternProperties": {"[": {}}}, "/patternProperties/[", "no regular expression"),
    ({"pattern": "a{1,1000000000}"}, "/pattern", "repeats"),
    ({"items": {"$ref": "http://example.com/a.json"}}, "/items/$ref", "nothing is fetched"),
    ({"$ref": "#/$defs/a"}, "/$ref", "leads nowhere"),
    ({"$dynamicRef": "#a"}, "/$dynamicRef", "no $anchor"),
    ({"allOf": [{"$ref": "#"}]}, "", "lead back to it"),
    (False, "", "nothing satisfies"),
    ({"not": {}}, "", "nothing satisfies"),
    ({"enum": []}, "/enum", "empty"),
    ({"enum": [1, 2], "const": True}, "/const", "not in enum"),
    ({"type": "string", "enum": [1, 2]}, "/enum", "types"),
    ({"type": "string", "const": 1}, "/const", "types"),
    ({"allOf": [{"type": "string"}, {"type": "object"}]}, "/allOf", "types"),
    ({"type": "string", "$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, "/$ref", "types"),
    ({"allOf": [{}, False]}, "/allOf", "false"),
    ({"anyOf": [{"enum": []}, {"type": "string", "const": 1}]}, "/anyOf", "none of the alternatives"),
    ({"minLength": 4, "maxLength": 3}, "/minLength", "above maxLength"),
    ({"minItems": 4, "maxItems": 3}, "/minItems", "above maxItems"),
    ({"minContains": 4, "maxContains": 3}, "/minContains", "above maxContains"),
    ({"minProperties": 4, "maxProperties": 3}, "/minProperties", "above maxProperties"),
    ({"minimum": 4, "maximum": 3}, "/minimum", "no number"),
    ({"minimum": 3, "exclusiveMaximum": 3}, "/minimum", "no number"),
    ({"$schema": DRAFT["4"], "minimum": 3, "maximum": 3, "exclusiveMaximum": True}, "/minimum", "no number"),
    ({"type": "integer", "exclusiveMinimum": 1, "maximum": 1.5}, "/exclusiveMinimum", "no whole number"),
    ({"minimum": 0.11, "maximum": 0.19, "multipleOf": 0.1}, "/minimum", "no multiple"),
    ({"required": ["a"], "properties": {"a": False}}, "/required", "false"),
    ({"required": ["a"], "additionalProperties": False}, "/required", "none of the properties"),
    ({"required": ["a", "b"], "maxProperties": 1}, "/required", "maxProperties is 1"),
    (
        {"minProperties": 2, "properties": {"a": {}}, "additionalProperties": False},
        "/minProperties",
        "only 1",
    ),
    ({"prefixItems": [{}], "items": False, "minItems": 2}, "/minItems", "only 1"),
    ({"$schema": DRAFT["7"], "items": [{}], "additionalItems": False, "minItems": 2}, "/minItems", "only 1"),
    ({"minItems": 1, "items": {"enum": []}}, "/items/enum", "empty"),
    ({"uniqueItems": True, "minItems": 3, "items": {"enum": ["a", "b", "a"]}}, "/minItems", "only 2 items"),
    ({"uniqueItems": True, "minItems": 3, "items": {"type": "boolean"}}, "/minItems", "only 2 items"),
    ({"propertyNames": {"enum": ["a"]}, "minProperties": 2}, "/minProperties", "only 1 names"),
    ({"propertyNames": {"enum": ["a"]}, "required": ["b"]}, "/required", "propertyNames does not allow it"),
    (
        {"required": ["a"], "properties": {"a": {"anyOf": [False, {"enum": []}]}}},
        "/properties/a/anyOf",
        "none of the alternatives",
    ),
    ({"minItems": 1, "prefixItems": [{"type": "string", "const": 1}]}, "/prefixItems/0/const", "types"),
    ({"contains": {"minLength": 2, "maxLength": 1}}, "/contains/minLength", "above"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"enum": []}}}, "/$defs/a/enum", "empty"),
    ({**OBJECT, "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "", "never end"),
    ({"type": "array", "minItems": 1, "items": {"$ref": "#"}}, "", "never end"),
]


def test_a_schema_is_refused_at_its_place():
    for schema, pointer, part in REFUSED:
        with pytest.raises(SchemaError) as caught:
            check_schema(schema)
        assert caught.value.pointer == pointer, schema
        assert part in caught.value.message, schema
        assert (pointer or "the root") in caught.value.message, schema
        assert caught.value.exit_code == 3, schema


def test_a_schema_that_can_be_used_passes():
    for schema in [
        True,
        {},
        {"properties": {"a": False, "b": {"not": {}}}, "items": False, "additionalProperties": False},
        {"anyOf": [{"enum": []}, {"type": "string"}]},
        {"not": {"enum": []}, "if": {"minimum": 2, "maximum": 1}, "then": False},
        {"type": "string", "minItems": 2, "maxItems": 1},
        {"requierd": [], "additonalProperties": True, "minlength": 0, "maxlength": "3", "uniqueitems": False},
        {"x-requierd": 1, "note": "", "example": 1, "nullable": True, "markdownDescription": ""},
        {"enum": ["requierd"], "properties": {"requierd": {}}, "default": {"tpye": 1}},
        {"required": ["ab"], "patternProperties": {"^a": {}}, "additionalProperties": False},
        {**OBJECT, "properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}},
        {
            "$schema": DRAFT["7"],
            "$ref": "#/definitions/a",
            "type": "array",
            "definitions": {"a": {"type": "null"}},
        },
        {"$schema": DRAFT["7"], "minContains": "a", "maxContains": 0, "prefixItems": 5},
        {"$schema": DRAFT["4"], "const": 1, "enum": [2]},
        {"$schema": "https://json-schema.org/draft-07/schema", "items": [{}]},
        {"type": "integer", "multipleOf": 0.5, "minimum": 1, "maximum": 1},
        {"type": ["integer", "string"], "enum": ["a", 1.0]},
        {"$ref": "#/components/a", "components": {"a": {"type": "object"}}},
        {"$id": "https://example.org/x", "$ref": "https://example.org/x#/$defs/a", "$defs": {"a": {}}},
    ]:
        check_schema(schema)
    for draft in DRAFTS:
        meta = draft.validator().META_SCHEMA
        if "allOf" not in meta:  # the newer ones refer to their vocabularies, which are other files
            check_schema(meta)


def test_a_schema_is_an_object_or_a_switch():
    for value in [5, "a", [], None]:
        assert "an object, true or false" in refusal(SchemaError, check_schema, value), value


def test_the_first_faults_are_told_together():
    with pytest.raises(SchemaError) as caught:
        check_schema({"properties": {f"p{n}": {"type": "x"} for n in range(9)}})
    assert caught.value.message.count("no type") == 5
    assert caught.value.message.endswith("There is more.")


def test_size_and_depth_have_limits_that_are_named():
    schema = {}
    for _ in range(DOCUMENT.max_depth + 1):
        schema = {"items": schema}
    with pytest.raises(SchemaError, match=f"more than {DOCUMENT.max_depth} deep"):
        check_schema(schema)
    with pytest.raises(SchemaError, match=f"the limit is {MAX_BYTES}"):
        check_schema({"description": "x" * MAX_BYTES})
    check_schema(schema["items"])


def test_a_word_is_likely_the_keyword_that_it_nearly_is():
    for word, keyword in [
        ("propertys", "properties"),
        ("patternPropertys", "patternProperties"),
        ("Properties", "properties"),
        ("propertie", "properties"),
        ("enumm", "enum"),
        ("requierd", "required"),
        ("ref", "$ref"),
        ("minLenght", "minLength"),
        ("maxLength", None),
        ("annotations", None),
        ("x" * 10_000, None),
    ]:
        assert likely_keywords(word)[:1] == ((keyword,) if keyword else ()), word


def test_a_misspelled_keyword_is_one_that_would_change_what_is_accepted():
    for word, value, keyword in [
        ("additonalProperties", False, "additionalProperties"),
        ("maxlength", 3, "maxLength"),
        ("onOf", [{"type": "null"}], "oneOf"),
        ("requierd", ["a"], "required"),
        ("exclusiveminimum", 0, "exclusiveMinimum"),
        ("maxlength", "3", None),
        ("requierd", [], None),
        ("additonalProperties", True, None),
        ("additonalProperties", {}, None),
        ("uniqueitems", False, None),
        ("readonly", True, None),
        ("decription", "a name", None),
        ("$default", 1, None),
        ("$deprecated", True, None),
        ("Id", "a", None),
        ("definition", {"a": {}}, None),
        ("_format", "date", None),
        ("_comment", 1, None),
        ("_uniqueItems", True, None),
    ]:
        assert misspelled(word, value, DRAFTS[0]) == keyword, word
    for draft, keyword in [(DRAFTS[0], "dependentRequired"), (DRAFTS[-1], None)]:
        assert misspelled("dependentrequired", {"a": ["b"]}, draft) == keyword, draft


def test_an_optional_part_that_nothing_satisfies_and_a_draft_inside_are_remarks():
    for schema, pointers in [
        ({}, []),
        ({"properties": {"a": {}, "b": {"type": "object", "enum": ["x"]}}}, ["/properties/b/enum"]),
        ({"properties": {"a": {"minimum": 2, "maximum": 1}}, "required": ["b"]}, ["/properties/a/minimum"]),
        ({"items": {"enum": []}}, ["/items/enum"]),
        ({"prefixItems": [{}, {"enum": []}], "minItems": 1}, ["/prefixItems/1/enum"]),
        ({"additionalProperties": {"type": "string", "const": 1}}, ["/additionalProperties/const"]),
        ({"patternProperties": {"^a": {"enum": []}}}, ["/patternProperties/^a/enum"]),
        (
            {"anyOf": [{}, {"required": ["a"], "properties": {"a": {"enum": []}}}]},
            ["/anyOf/1/properties/a/enum"],
        ),
        (
            {
                "items": {"$ref": "#/$defs/n"},
                "$defs": {"n": {**OBJECT, "required": ["n"], "properties": {"n": {"$ref": "#/$defs/n"}}}},
            },
            ["/$defs/n"],
        ),
        ({"$defs": {"a": {"$schema": DRAFT["7"]}}}, ["/$defs/a/$schema"]),
        ({"$defs": {"a": {"$schema": DRAFT["2020-12"]}}}, ["/$defs/a/$schema"]),
        ({"$schema": DRAFT["7"], "$defs": {"a": {"$schema": DRAFT["7"]}}}, ["/$defs/a/$schema"]),
        ({"$schema": DRAFT["7"], "$defs": {"a": {}}}, []),
    ]:
        remarks = check_schema(schema)
        assert len(remarks) == bool(pointers), schema
        assert all(f"{pointer}: " in remarks[0] for pointer in pointers), schema


ITEM = {"properties": {"name": {"type": "string"}, "sub": {"$ref": "#/$defs/item"}}}
UNION = {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"x": True}}]}

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "kind": {"enum": ["a", "b"]},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "pair": {"type": "array", "prefixItems": [{"const": 1}, {"properties": {"a": {}}}], "items": False},
        "few": {"type": "array", "maxItems": 2},
        "u": UNION,
        "both": {"allOf": [{"properties": {"a": True}}, {"properties": {"b": False}}]},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"y": True}}},
        "when": {"if": {"type": "string"}, "then": {}},
        "p": {"patternProperties": {"^x": {"type": "string"}}},
    },
    "$defs": {"item": ITEM},
}

REACHED = """/id /items/*/name /items/7/sub/sub/name /pair/1/a /pair/*/a /u/x /both/a /map/any/y /map/*/y
    /when/z /p/xy /* /*/*/name /few/1""".split()

NOT = {
    "/nme": "the root", "/id/a": "/id", "/kind/a": "/kind", "/items/name": "/items",
    "/items/*/nme": "/items/*", "/pair/0/a": "/pair/0", "/pair/2": "/pair", "/u/y": "/u", "/both/b": "/both",
    "/map/any/z": "/map/any", "/p/y": "/p", "/few/2": "/few"
}  # fmt: skip


def test_a_path_is_reached_or_named_where_it_leaves_with_the_names_there():
    for path in ["", *REACHED]:
        assert unreached(SCHEMA, path, is_open=False) is None, path
    wide = {"allOf": [{"anyOf": [{"properties": {f"a{i}{j}": True}} for j in range(9)]} for i in range(9)]}
    assert unreached(wide, "/b", is_open=False) is None
    assert unreached(SCHEMA, "/items/0/x", is_open=False) == ("/items/0", ("name", "sub"))
    for path in NOT:
        found = unreached(SCHEMA, path, is_open=False)
        assert found is not None, path
        assert found[0] == NOT[path], path


def test_open_objects_may_have_any_property():
    assert unreached(SCHEMA, "/nme", is_open=True) is None
    assert unreached({"additionalProperties": False, "properties": {"a": 1}}, "/b", is_open=True) is not None
    assert unreached({"type": "object"}, "/b/c/0", is_open=False) is None


OVER = Deadline(3.0, 0.0)
KIND = {"type": "string", "maxLength": 3}


def branch(index):
    kind = {"type": "string", "const": f"k{index}"}
    return {"type": "object", "properties": {"kind": kind}, "required": ["kind"]}


@dataclass(frozen=True)
class Counting(Deadline):
    """Counts how often the clock is looked at."""

    looks: itertools.count = field(default_factory=itertools.count)

    def check(self):
        next(self.looks)


def test_what_takes_too_long_is_an_error_that_names_the_limit():
    for work in [check_schema, lambda schema, end: choose(schema, PlanRequest(deadline=end))]:
        with pytest.raises(OutOfTime, match="time limit of 3 s") as caught:
            work(KIND, OVER)
        assert caught.value.exit_code == 3, work
        assert "`grammar_timeout`" in caught.value.hint, work


def test_branches_that_are_too_many_to_exclude_each_other_are_not_compared():
    end = Counting.after(60.0)
    choose({"oneOf": [branch(index) for index in range(100)]}, PlanRequest(deadline=end))
    assert next(end.looks) < 5000


def test_a_pattern_that_backtracks_over_a_name_is_given_up():
    for where in ["properties", "required"]:
        name = 40 * "a" + "b"
        schema = {
            "patternProperties": {"^(a+)+$": {}},
            where: {name: {}} if where == "properties" else [name],
        }
        check_schema(schema)
        assert len(choose(schema).variants) == 2, where
