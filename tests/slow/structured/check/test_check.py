"""A schema that cannot be used is refused before a run, with the place and the reason."""

import re

from gencli.structured.schema_check import MAX_PATTERNS, MAX_SUBSCHEMAS, check_schema
from gencli.structured.schema_errors import SchemaError
from tests.helpers.refusal import refusal
from tests.structured.check.test_check import DRAFT


def test_numbers_have_limits_that_are_named():
    for schema, limit in [
        ({"allOf": [{}] * MAX_SUBSCHEMAS}, MAX_SUBSCHEMAS),
        ({"patternProperties": {f"a{n}": {} for n in range(3000)}}, MAX_PATTERNS),
    ]:
        assert re.search(str(limit), refusal(SchemaError, check_schema, schema)), schema


def test_a_long_enum_of_objects_is_checked_quickly():
    check_schema({"$schema": DRAFT["4"], "enum": [{"a": n} for n in range(20_000)]})
