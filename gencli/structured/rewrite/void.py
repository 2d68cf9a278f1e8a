"""What turns out to allow nothing is left out: back ends refuse a definition that is false."""

from __future__ import annotations

from typing import Any

from gencli.structured.rewrite.node import AT, Schema
from gencli.structured.rewrite.objects import without_dead

__all__ = ["without_void"]

_PREFIX = "#/$defs/"


def without_void(schema: Schema) -> Schema:
    """The same schema without definitions, branches and objects that no value satisfies."""
    while isinstance(schema, dict):
        defs = schema.get("$defs", {})
        ending = _ending(defs)
        void = frozenset(name for name in map(_PREFIX.__add__, defs) if name not in ending)
        if not void:
            return schema
        kept = {name: _cleaned(below, void) for name, below in defs.items() if _PREFIX + name in ending}
        cleaned = _cleaned({key: below for key, below in schema.items() if key != "$defs"}, void)
        schema = {**cleaned, **({"$defs": kept} if kept else {})} if isinstance(cleaned, dict) else cleaned
    return schema


def _ending(defs: dict[str, Schema]) -> frozenset[str]:
    """The references to definitions that a finite value satisfies, as far as their required parts tell."""
    ending: frozenset[str] = frozenset()
    while True:
        found = frozenset(_PREFIX + name for name, below in defs.items() if _ends(below, ending))
        if found == ending:
            return ending
        ending = found


def _ends(schema: Any, ending: frozenset[str]) -> bool:
    """Whether a value can end, where those that these references lead to can."""
    if not isinstance(schema, dict):
        return schema is not False
    if str(schema.get("$ref", "")).startswith(_PREFIX):
        return schema["$ref"] in ending
    if not all(_ends(below, ending) for below in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(_ends(below, ending) for below in schema["anyOf"]):
        return False
    needed = []
    if schema.get("type") == "object":
        needed = [schema.get("properties", {}).get(name, True) for name in schema.get("required", ())]
    if schema.get("type") == "array":
        heads, least = schema.get("prefixItems", []), schema.get("minItems", 0)
        needed = [
            *heads[:least],
            *[schema.get("items", True)] * (least > len(heads)),
            schema.get("contains", True),
        ]
    return all(_ends(below, ending) for below in needed)


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
    if found.get("contains") is False:
        return False
    return without_dead(found) or False
