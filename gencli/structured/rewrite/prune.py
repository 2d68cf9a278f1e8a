"""Removal of parts that no value satisfies: definitions, branches, values of enum."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from gencli.structured.audit.shapes import is_of
from gencli.structured.rewrite.node import ALSO, AT, Flat, Schema, Scope, origins, plain, without
from gencli.structured.rewrite.objects import drop_dead_properties

__all__ = ["drop_void", "filter_enum"]

_PREFIX = "#/$defs/"
_ROOT = "urn:gencli:schema"


def drop_void(schema: Schema) -> Schema:
    """Return the schema without definitions, branches and objects that no value satisfies."""
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
    """Return the references to definitions that a finite value satisfies, judged by required parts."""
    ending: frozenset[str] = frozenset()
    while True:
        found = frozenset(_PREFIX + name for name, below in defs.items() if _ends(below, ending))
        if found == ending:
            return ending
        ending = found


def _ends(schema: Any, ending: frozenset[str]) -> bool:
    """Whether a finite value satisfies the schema, given the satisfiable references `ending`."""
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
    """Return the value, with False for each reference to a schema that no value satisfies."""
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
    return drop_dead_properties(found) or False


def filter_enum(flat: Flat, scope: Scope) -> Flat | None:
    """Keep the values of enum that satisfy the other keywords; None if no value is left."""
    rest = without(flat, "enum")
    values = flat["enum"]
    places = flat[AT].get("enum", frozenset())
    if rest.keys() != {AT}:
        scope.note(origins(rest), "rewritten: the values that it refuses are left out")
        places |= origins(rest)
        types = frozenset(rest.get("type", ()))
        values = [value for value in values if not types or is_of(value, types)]
    if rest.keys() - {AT, "type"}:
        registry = Registry().with_resource(_ROOT, DRAFT202012.create_resource(scope.root))
        validator = Draft202012Validator(_absolute(plain(rest)), registry=registry)
        values = [value for value in values if validator.is_valid(value)]
    return {"enum": values, AT: {"enum": places}} if values else None


def _absolute(value: Any) -> Any:
    """Return the schema with references relative to the whole schema."""
    if isinstance(value, dict):
        found = {key: _absolute(below) for key, below in value.items() if key != ALSO}
        if isinstance(ref := found.get("$ref"), str):
            found["$ref"] = f"{_ROOT}#{ref}"
        return found
    return [_absolute(item) for item in value] if isinstance(value, list) else value
