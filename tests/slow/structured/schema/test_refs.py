"""Every subschema is found, references lead where the drafts say, and nothing is fetched."""

import re

from gencli.structured.schema_check import check_schema
from gencli.structured.schema_errors import SchemaError
from gencli.structured.schema_validator import Validator
from tests.helpers.refusal import refusal


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
