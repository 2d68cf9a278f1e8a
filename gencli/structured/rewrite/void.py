"""What turns out to allow nothing is left out: back ends refuse a definition that is false."""

from __future__ import annotations

from typing import Any

from gencli.structured.rewrite.node import AT, Schema

__all__ = ["without_void"]

_PREFIX = "#/$defs/"


def without_void(schema: Schema) -> Schema:
    """The same schema without definitions, branches and objects that no value satisfies."""
    while isinstance(schema, dict):
        defs = schema.get("$defs", {})
        void = frozenset(_PREFIX + name for name, below in defs.items() if below is False)
        if not void:
            return schema
        kept = {name: _cleaned(below, void) for name, below in defs.items() if below is not False}
        cleaned = _cleaned({key: below for key, below in schema.items() if key != "$defs"}, void)
        schema = {**cleaned, **({"$defs": kept} if kept else {})} if isinstance(cleaned, dict) else cleaned
    return schema


def _cleaned(value: Any, void: frozenset[str]) -> Any:
    """The value, with False for each schema that a void reference makes void."""
    if isinstance(value, list):
        return [_cleaned(item, void) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("$ref") in void and isinstance(value.get(AT), dict):
        return False
    if "enum" in value:
        return value
    found = {key: below if key == AT else _cleaned(below, void) for key, below in value.items()}
    if AT not in found:
        return found
    if "anyOf" in found:
        branches = [branch for branch in found["anyOf"] if branch is not False]
        return {**found, "anyOf": branches} if branches else False
    properties = found.get("properties", {})
    return False if any(properties.get(name) is False for name in found.get("required", ())) else found
