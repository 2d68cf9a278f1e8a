"""Schemas enforced as they are, for grammars that have schemas inside."""

import json

from gencli.structured.output_spec import Audit, Finding, Plan, Variant
from gencli.structured.schema_validator import Validator
from gencli.structured.tool_calls import Schemas
from processors.request_values import Constraint


def choose(schema):
    """The schema itself, for either back end; `not` for xgrammar alone, which leaves it to the check."""
    text = json.dumps(schema)
    findings = (Finding("/not", "not", "check", "not enforced"),) if "not" in schema else ()
    variants = [Variant(Constraint("json_schema", text, "xgrammar"), Audit("xgrammar", findings))]
    if not findings:
        variants.append(Variant(Constraint("json_schema", text, "llguidance"), Audit("llguidance")))
    return Plan(tuple(variants), schema=schema)


SCHEMAS = Schemas(choose, Validator)
