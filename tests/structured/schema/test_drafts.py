"""The draft of a schema that declares none."""

from gencli.structured.json_schema import DRAFTS, draft_of, with_draft
from gencli.structured.schema_check import check_schema
from gencli.structured.schema_validator import Validator

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
