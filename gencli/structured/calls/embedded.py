"""JSON schemas inside other grammars."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gencli.structured.check.check import check_schema
from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.errors import SchemaError
from gencli.structured.plan import Finding, Plan

__all__ = ["Embedded", "Schemas", "ValueCheck", "check_inside", "embed", "json_end"]


class ValueCheck(Protocol):
    """Interface of a check of values against a schema, such as Validator."""

    def faults(self, value: Any) -> tuple[str, ...]:
        """Return the faults of the value; () if it is valid."""
        ...


@dataclass(frozen=True, slots=True)
class Schemas:
    """Functions that plan one JSON schema and make its check; planning ends by `deadline`."""

    choose: Callable[[Any], Plan]
    check: Callable[[Any], ValueCheck]
    deadline: Deadline = NEVER


@dataclass(frozen=True, slots=True)
class Embedded:
    """A schema in the form for one back end, its white-space limit, and its findings."""

    schema: Any
    whitespace: int
    findings: tuple[Finding, ...]


def check_inside(schema: Any, pointer: str, deadline: Deadline = NEVER) -> None:
    """Raise SchemaError unless the schema at `pointer` can be used.

    The error's JSON pointer refers to the whole document.
    """
    try:
        check_schema(schema, deadline)
    except SchemaError as error:
        what = f"The schema at {pointer}: {error.message}"
        raise SchemaError(what, pointer=pointer + error.pointer, hint=error.hint) from None


def embed(schema: Any, pointer: str, backend: str, schemas: Schemas) -> Embedded | None:
    """Return the schema rewritten for a back end, or None if the back end does not support it.

    The findings are moved to `pointer`. Inside a tag xgrammar generates only properties and items that the
    schema mentions, a subset of the valid values.
    """
    for variant in schemas.choose(schema).variants:
        constraint = variant.constraint
        if constraint.backend == backend and constraint.kind == "json_schema":
            moved = (
                replace(finding, pointer=pointer + finding.pointer) for finding in variant.audit.findings
            )
            return Embedded(json.loads(constraint.text), constraint.whitespace, tuple(moved))
    return None


def json_end(text: str, start: int) -> int:
    """Return the offset after the JSON value at `start`; the end of the text if it is not JSON."""
    space = len(text) - start - len(text[start:].lstrip(" \t\r\n"))
    try:
        return json.JSONDecoder().raw_decode(text, start + space)[1]
    except (ValueError, RecursionError):
        return len(text)
