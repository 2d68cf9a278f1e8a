"""Schemas inside other grammars: what is chosen for them alone, put where they stand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gencli.structured.finish import TextCheck
from gencli.structured.plan import Finding, Plan

__all__ = ["Embedded", "Schemas", "embed", "json_end"]


@dataclass(frozen=True, slots=True)
class Schemas:
    """What is known of JSON schemas: how to enforce one by itself, and how to check a document."""

    choose: Callable[[Any], Plan]
    check: Callable[[Any], TextCheck]


@dataclass(frozen=True, slots=True)
class Embedded:
    """A schema as one back end takes it, the most white space in one place, and what was found out."""

    schema: Any
    whitespace: int
    findings: tuple[Finding, ...]


def embed(schema: Any, pointer: str, backend: str, schemas: Schemas) -> Embedded | None:
    """The schema as rewritten for a back end, its findings moved to `pointer`; None if there is none."""
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
