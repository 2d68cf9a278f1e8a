"""Schemas enforced as they are, for grammars that have schemas inside."""

import json
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator

from gencli.structured.document import parse
from gencli.structured.embedded import Schemas
from gencli.structured.errors import DocumentError
from gencli.structured.plan import Audit, Finding, Plan, Variant
from processors.grammar.constraint import Constraint


@dataclass(frozen=True)
class SchemaCheck:
    """Parses and validates."""

    schema: Any

    def faults(self, text):
        try:
            value = parse(text)
        except DocumentError as error:
            return (error.message,)
        return tuple(error.message for error in Draft202012Validator(self.schema).iter_errors(value))


def choose(schema):
    """The schema itself, for either back end; `not` for xgrammar alone, which leaves it to the check."""
    text = json.dumps(schema)
    findings = (Finding("/not", "not", "check", "not enforced"),) if "not" in schema else ()
    variants = [Variant(Constraint("json_schema", text, "xgrammar"), Audit("xgrammar", findings))]
    if not findings:
        variants.append(Variant(Constraint("json_schema", text, "llguidance"), Audit("llguidance")))
    return Plan(tuple(variants), schema=schema)


SCHEMAS = Schemas(choose, SchemaCheck)
