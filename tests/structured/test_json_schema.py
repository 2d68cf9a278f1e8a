"""Every subschema is found, references lead where the drafts say, and nothing is fetched."""

import json
import re

import pytest
from jsonschema import Draft202012Validator
from jsonschema_specifications import REGISTRY

from gencli.structured.backend_choice import choose
from gencli.structured.json_schema import (
    DRAFTS,
    References,
    draft_of,
    find_cycle,
    walk,
    with_draft,
    with_published,
)
from gencli.structured.output_spec import PlanRequest
from gencli.structured.schema_check import check_schema
from gencli.structured.schema_errors import SchemaError
from gencli.structured.schema_validator import Validator
from tests.helpers.refusal import refusal
from tests.structured.probes.acceptor import acceptor

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
        assert References(NAMED).resolve(ref, base)[0] == pointer, ref


def test_old_drafts_name_places_by_their_id():
    for draft, keyword in [
        ("http://json-schema.org/draft-04/schema#", "id"),
        ("http://json-schema.org/draft-07/schema#", "$id"),
    ]:
        schema = {"$schema": draft, "definitions": {"A": {keyword: "#a"}, "B": {keyword: "b.json"}}}
        assert References(schema).resolve("#a")[0] == "/definitions/A", draft
        assert References(schema).resolve("b.json")[0] == "/definitions/B", draft


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
            References(schema).resolve(ref, "/properties/a~1b")
        assert caught.value.pointer == "/properties/a~1b/$ref", ref
        assert ref in caught.value.message, ref


def test_walk_finds_every_subschema_in_the_order_of_the_text_and_leaves_values_alone():
    holders = {
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
    pointers = """ /items /additionalItems /prefixItems/0 /prefixItems/1 /allOf/0 /$defs/a~1b /$defs/c~0d
        /properties/properties /properties/enum /dependencies/c /if /not /contentSchema""".split()
    assert [pointer for pointer, _ in walk(holders)] == ["", *pointers]
    for values in [{"enum": [{"items": {}}]}, {"const": {"not": {}}}, {"default": {"if": {}}}]:
        assert [pointer for pointer, _ in walk(values)] == [""], values
    named = {"$ref": "#/components/A", "components": {"A": {"items": {}}, "B": {}}}
    assert [pointer for pointer, _ in walk(named)] == ["", "/components/A", "/components/A/items"]
    deep = {}
    for _ in range(3_000):  # more than a stack has
        deep = {"not": deep}
    assert sum(1 for _ in walk(deep)) == 3_001


def test_a_schema_that_never_gets_to_the_value_is_found():
    for schema in [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}},
        {"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}},
        {"$dynamicAnchor": "x", "not": {"$dynamicRef": "#x"}},
    ]:
        assert find_cycle(schema) is not None, schema
    chain = {"$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(5_000)} | {"5000": {}}}
    for schema in [
        {"properties": {"next": {"$ref": "#"}}},
        {"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}}]},
        {"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}], "$defs": {"A": {"type": "string"}}},
        chain,
    ]:
        assert find_cycle(schema) is None, schema


PAIR = {"type": "array", "items": [{"type": "integer"}, {"type": "boolean"}], "additionalItems": False}


def test_a_list_of_items_is_of_an_older_draft():
    for schema in (PAIR, {"properties": {"items": {"$ref": "#/definitions/a"}}, "definitions": {"a": PAIR}}):
        assert draft_of(with_draft(schema)).name == "2019-09", schema
    for schema in ({**PAIR, "$schema": DRAFTS[2].uri}, {"enum": [PAIR]}, {**PAIR, "prefixItems": [{}]}, True):
        assert with_draft(schema) == schema, schema


def test_a_list_of_items_is_checked_by_position():
    check_schema(PAIR)
    assert Validator(PAIR).faults([1, True]) == ()
    assert Validator(PAIR).faults([1, 2])
    assert Validator(PAIR).faults([1, True, 3])


OLD = [f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7)]
NEW = [f"https://json-schema.org/draft/{year}/schema" for year in ("2019-09", "2020-12")]
APPLICATOR = "https://json-schema.org/draft/2020-12/meta/applicator"

SCHEMAS = [
    {},
    {"type": "strin"},
    {"minLength": -1},
    {"multipleOf": 0},
    {"properties": {"a": {"items": {"minLength": 1}}}},
    {"properties": {"a": {"items": {"minLength": -1}}}},
    {"exclusiveMaximum": True},
    {"exclusiveMaximum": 3},
    {"x": 2},
    True,
    3,
]


def mask(schema):
    """What the chosen mask accepts."""
    constraint = choose(schema, PlanRequest(extra=True)).variants[0].constraint
    return acceptor(constraint.backend, json.loads(constraint.text))


@pytest.mark.parametrize("uri", [*OLD, *NEW, APPLICATOR])
def test_a_whole_meta_schema_is_what_jsonschema_reads(uri):
    schema = {"$ref": uri}
    check_schema(schema)
    ours, stock = Validator(schema), Draft202012Validator(schema, registry=REGISTRY)
    for value in SCHEMAS:
        assert (ours.faults(value) == ()) == stock.is_valid(value), value


def test_a_part_of_a_meta_schema_is_enforced_whole():
    for uri, is_old in [(OLD[0], False), (OLD[0], True), (OLD[2].replace("http:", "https:"), False)]:
        schema = {
            **({"$schema": uri} if is_old else {}),
            "type": "object",
            "properties": {"m": {"$ref": f"{uri}/properties/maximum".replace("##", "#")}},
            "required": ["m"],
        }
        check_schema(schema)
        plan = choose(schema)
        assert plan.variants[0].audit.is_exact, uri
        accepts = mask(schema)
        assert accepts('{"m": 4}'), uri
        assert not accepts('{"m": "4"}'), uri


def test_dynamic_references_lead_to_the_meta_schema_that_was_entered():
    inner = {"properties": {"a": {"minLength": -1}}}
    both = {"anyOf": [{"$ref": APPLICATOR}, {"$ref": NEW[1]}]}
    for schema, is_valid in [({"$ref": APPLICATOR}, True), ({"$ref": NEW[1]}, False), (both, True)]:
        assert (Validator(schema).faults(inner) == ()) is is_valid, schema
        assert mask(schema)(json.dumps(inner)) is is_valid, schema
        assert not [one.pointer for one in choose(schema).variants[0].audit.open if "Ref" in one.pointer]


def test_a_schema_that_extends_a_meta_schema_is_what_dynamic_references_lead_to():
    schema = {
        "$id": "https://example.com/mine",
        "$dynamicAnchor": "meta",
        "$ref": NEW[1],
        "properties": {"x": {"const": 1}},
    }
    assert Validator(schema).faults({"properties": {"a": {"x": 1}}}) == ()
    assert Validator(schema).faults({"properties": {"a": {"x": 2}}})
    accepts = mask(schema)
    assert accepts('{"properties": {"a": {"x": 1}}}')
    assert not accepts('{"properties": {"a": {"x": 2}}}')
    nameless = {key: value for key, value in schema.items() if key != "$id"}
    assert Validator(nameless).faults({"properties": {"a": {"x": 2}}})
    assert not mask(nameless)('{"properties": {"a": {"x": 2}}}')
    inner = {**schema, "$defs": {"b": {"$id": "b", "$dynamicAnchor": "meta"}}, "$dynamicAnchor": "other"}
    assert any("$dynamicRef" in one.pointer for one in choose(inner).variants[0].audit.open)


@pytest.mark.parametrize("uri", [*OLD, *NEW])
def test_a_meta_schema_that_is_given_as_the_schema_itself_has_its_vocabularies(uri):
    schema = REGISTRY.contents(uri.removesuffix("#"))
    check_schema(schema)
    assert Validator(schema).faults({"properties": {"a": {"minLength": -1}}})
    assert not [one.pointer for one in choose(schema).variants[0].audit.open if "Ref" in one.pointer]


def test_what_is_not_published_or_newer_is_refused():
    for uri, reason in [
        ("http://json-schema.org/draft-07/hyper-schema#", "nothing is fetched"),
        ("http://json-schema.org/schema#", "nothing is fetched"),
        ("http://json-schema.org.example.com/draft-07/schema#", "nothing is fetched"),
        (f"{OLD[0]}/properties/none", "leads nowhere"),
    ]:
        assert re.search(reason, refusal(SchemaError, check_schema, {"$ref": uri})), uri
    newer = {"$schema": OLD[0], "properties": {"a": {"$ref": OLD[2]}}}
    assert "leads to a newer draft" in refusal(SchemaError, check_schema, newer)


def test_other_schemas_stay_as_they_are():
    own = {"$id": OLD[2], "$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}
    for schema in (True, {"$ref": "#"}, {"$ref": "https://example.com/a"}, own):
        assert with_published(schema) is schema, schema
    once = with_published({"$ref": OLD[2]})
    assert with_published(once) is once
