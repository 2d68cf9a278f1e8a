"""Every subschema is found, references lead where the drafts say, and nothing is fetched."""

import pytest

from gencli.structured.json_schema import find_cycle, resolve, walk
from gencli.structured.schema_errors import SchemaError

HOLDERS = {
    "items": {},
    "additionalItems": {},
    "prefixItems": [{}, True],
    "allOf": [{}],
    "$defs": {"a/b": {}, "c~d": {}},
    "properties": {"properties": {}, "enum": {}},
    "dependencies": {"a": ["b"], "c": {}},
    "if": {},
    "not": False,
    "contentSchema": {},
}


def test_walk_finds_every_subschema_in_the_order_of_the_text():
    assert [pointer for pointer, _ in walk(HOLDERS)] == [
        "",
        "/items",
        "/additionalItems",
        "/prefixItems/0",
        "/prefixItems/1",
        "/allOf/0",
        "/$defs/a~1b",
        "/$defs/c~0d",
        "/properties/properties",
        "/properties/enum",
        "/dependencies/c",
        "/if",
        "/not",
        "/contentSchema",
    ]


def test_walk_leaves_values_alone():
    for values in [{"enum": [{"items": {}}]}, {"const": {"not": {}}}, {"default": {"if": {}}}]:
        assert [pointer for pointer, _ in walk(values)] == [""], values


def test_walk_goes_where_only_a_reference_leads():
    schema = {"$ref": "#/components/A", "components": {"A": {"items": {}}, "B": {}}}
    assert [pointer for pointer, _ in walk(schema)] == ["", "/components/A", "/components/A/items"]


def test_walk_needs_no_stack():
    schema = {}
    for _ in range(3_000):
        schema = {"not": schema}
    assert sum(1 for _ in walk(schema)) == 3_001


NAMED = {
    "$id": "https://example.org/root",
    "$defs": {
        "A": {"$anchor": "a", "type": "string"},
        "B": {"$id": "sub/b", "$defs": {"C": {"$anchor": "a"}, "D": {"$dynamicAnchor": "d"}}},
        "50%": {"$id": "urn:example:half"},
    },
}


def test_references_lead_where_the_nearest_id_says():
    for ref, base, pointer in [
        ("#", "/$defs/A", ""),
        ("#/$defs/A", "", "/$defs/A"),
        ("#/$defs/50%25", "", "/$defs/50%"),
        ("#a", "", "/$defs/A"),
        ("#a", "/$defs/B", "/$defs/B/$defs/C"),
        ("#d", "/$defs/B/$defs/C", "/$defs/B/$defs/D"),
        ("#", "/$defs/B/$defs/C", "/$defs/B"),
        ("#/$defs/C", "/$defs/B/$defs/D", "/$defs/B/$defs/C"),
        ("sub/b", "", "/$defs/B"),
        ("sub/b#a", "/$defs/A", "/$defs/B/$defs/C"),
        ("https://example.org/root#a", "/$defs/B", "/$defs/A"),
        ("../root", "/$defs/B", ""),
        ("urn:example:half", "", "/$defs/50%"),
    ]:
        assert resolve(NAMED, ref, base)[0] == pointer, ref


def test_old_drafts_name_places_by_their_id():
    for draft, keyword in [
        ("http://json-schema.org/draft-04/schema#", "id"),
        ("http://json-schema.org/draft-07/schema#", "$id"),
    ]:
        schema = {"$schema": draft, "definitions": {"A": {keyword: "#a"}, "B": {keyword: "b.json"}}}
        assert resolve(schema, "#a")[0] == "/definitions/A", draft
        assert resolve(schema, "b.json")[0] == "/definitions/B", draft


def test_a_reference_that_leads_nowhere_is_named_with_its_place():
    for ref, part in [
        ("https://example.com/person.json", "nothing is fetched"),
        ("file:///etc/passwd", "nothing is fetched"),
        ("other.json#/a", "nothing is fetched"),
        ("#/$defs/missing", "leads nowhere"),
        ("#/enum/01", "leads nowhere"),
        ("#/~2", "leads nowhere"),
        ("#/enum/0", "no schema"),
        ("#name", "no \\$anchor"),
    ]:
        schema = {"enum": [1, 2], "properties": {"a/b": {"$ref": ref}}}
        with pytest.raises(SchemaError, match=part) as caught:
            resolve(schema, ref, "/properties/a~1b")
        assert caught.value.pointer == "/properties/a~1b/$ref", ref
        assert ref in caught.value.message, ref


def test_a_schema_that_never_gets_to_the_value_is_found():
    for schema in [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
        {"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}},
        {"$dynamicAnchor": "x", "not": {"$dynamicRef": "#x"}},
    ]:
        assert find_cycle(schema) is not None, schema


def test_recursion_into_the_value_is_no_cycle():
    for schema in [
        {"properties": {"next": {"$ref": "#"}}},
        {"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}}]},
        {"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}], "$defs": {"A": {"type": "string"}}},
    ]:
        assert find_cycle(schema) is None, schema


def test_a_long_chain_of_references_is_followed_quickly():
    schema = {"$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(5_000)}}
    schema["$defs"]["5000"] = {}
    assert find_cycle(schema) is None
