"""Limits of a schema are named, and large schemas are checked quickly."""

import re

from gencli.structured.schema_check import MAX_PATTERNS, MAX_SUBSCHEMAS, check_schema
from gencli.structured.schema_errors import SchemaError
from gencli.structured.schema_validator import Validator
from tests.helpers.refusal import refusal
from tests.structured.test_schema_check import DRAFT


def test_numbers_have_limits_that_are_named():
    for schema, limit in [
        ({"allOf": [{}] * MAX_SUBSCHEMAS}, MAX_SUBSCHEMAS),
        ({"patternProperties": {f"a{n}": {} for n in range(3000)}}, MAX_PATTERNS),
    ]:
        assert re.search(str(limit), refusal(SchemaError, check_schema, schema)), schema


def test_a_long_enum_of_objects_is_checked_quickly():
    check_schema({"$schema": DRAFT["4"], "enum": [{"a": n} for n in range(20_000)]})


def test_a_chain_that_no_document_could_be_checked_through_is_the_schemas_fault():
    for step in [
        lambda ref: ref,
        *(lambda ref, k=k: {k: [ref]} for k in ("allOf", "anyOf")),
        *(lambda ref, k=k: {k: ref} for k in ("not", "if", "then")),
    ]:
        for length in [3, 300]:
            names = {f"d{n}": step({"$ref": f"#/$defs/d{n + 1}"}) for n in range(length)}
            schema = {"$ref": "#/$defs/d0", "$defs": {**names, f"d{length}": {"type": "integer"}}}
            if length == 3:
                check_schema(schema)
                assert not any("too deep" in fault for fault in Validator(schema).faults(1)), (step, length)
            else:
                assert re.search("apply to one value", refusal(SchemaError, check_schema, schema)), (
                    step,
                    length,
                )
