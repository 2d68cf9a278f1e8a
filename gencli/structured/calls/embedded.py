"""Schemas inside other grammars: what is chosen for them alone, put where they stand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.errors import SchemaError
from gencli.structured.plan import Finding, Plan
from gencli.structured.schema.check import check_schema

__all__ = ["Embedded", "Schemas", "ValueCheck", "check_inside", "embed", "json_end"]


class ValueCheck(Protocol):
    """Decides whether a value is what a schema says, as Validator does."""

    def faults(self, value: Any) -> tuple[str, ...]:
        """What is wrong with the value; () if it is right."""
        ...


@dataclass(frozen=True, slots=True)
class Schemas:
    """What is known of JSON schemas: how to enforce one by itself, and how to check a value against it.

    All of it has to be done by `deadline`.
    """

    choose: Callable[[Any], Plan]
    check: Callable[[Any], ValueCheck]
    deadline: Deadline = NEVER


@dataclass(frozen=True, slots=True)
class Embedded:
    """A schema as one back end takes it, the most white space in one place, and what was found out."""

    schema: Any
    whitespace: int
    findings: tuple[Finding, ...]


def check_inside(schema: Any, pointer: str, deadline: Deadline = NEVER) -> None:
    """SchemaError, with the pointer in the whole, unless the schema at `pointer` can be used."""
    try:
        check_schema(schema, deadline)
    except SchemaError as error:
        what = f"The schema at {pointer}: {error.message}"
        raise SchemaError(what, pointer=pointer + error.pointer, hint=error.hint) from None


def embed(schema: Any, pointer: str, backend: str, schemas: Schemas) -> Embedded | None:
    """The schema as rewritten for a back end, its findings moved to `pointer`; None if there is none.

    Inside a tag xgrammar writes no property and no item that a schema is silent on: a subset of it.
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
    """Where the JSON value that begins at `start` ends, as well as that can be told before it is checked."""
    space = len(text) - start - len(text[start:].lstrip(" \t\r\n"))
    try:
        return json.JSONDecoder().raw_decode(text, start + space)[1]
    except (ValueError, RecursionError):
        return len(text)
