"""A schema that lists its values needs nothing else: the values that the rest refuses go."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from gencli.structured.audit.shapes import is_of
from gencli.structured.rewrite.node import ALSO, AT, Flat, Scope, origins, plain, without

__all__ = ["filtered"]

_ROOT = "urn:gencli:schema"


def filtered(flat: Flat, scope: Scope) -> Flat | None:
    """The values that also satisfy what stands beside them; None if there is none."""
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
    """References lead into the whole schema."""
    if isinstance(value, dict):
        found = {key: _absolute(below) for key, below in value.items() if key != ALSO}
        if isinstance(ref := found.get("$ref"), str):
            found["$ref"] = f"{_ROOT}#{ref}"
        return found
    return [_absolute(item) for item in value] if isinstance(value, list) else value
