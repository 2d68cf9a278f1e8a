"""References to the published meta-schemas lead to the installed ones, for check, mask and audit."""

import json
import re

import pytest
from jsonschema import Draft202012Validator
from jsonschema_specifications import REGISTRY

from gencli.structured.backend_choice import choose
from gencli.structured.json_schema import with_published
from gencli.structured.schema_check import check_schema
from gencli.structured.schema_errors import SchemaError
from gencli.structured.schema_validator import Validator
from tests.helpers.refusal import refusal
from tests.structured.probes.acceptor import acceptor

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
    constraint = choose(schema, extra=True).variants[0].constraint
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
    assert mask(schema)('{"properties": {"a": {"x": 1}}}')
    assert not mask(schema)('{"properties": {"a": {"x": 2}}}')
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
