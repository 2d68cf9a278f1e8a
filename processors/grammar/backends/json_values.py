"""Arrays and objects in an `enum` as schemas of their parts, so that white space may stand in them.

xgrammar writes such a value as one literal without white space, so a model cannot write it as people do.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["spelled_out"]

_MAX_CHARACTERS = 2000  # of an `enum` that is spelled out; each array and object becomes a rule
_MAPS = ("properties", "patternProperties", "$defs")
_LISTS = ("anyOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "contains")


def spelled_out(schema: Any) -> Any:
    """Return a schema with the arrays and objects of each `enum` as schemas."""
    if not isinstance(schema, dict):
        return schema
    if schema.keys() == {"enum"} and len(json.dumps(schema)) <= _MAX_CHARACTERS:
        return _alternatives(schema["enum"])
    found = dict(schema)
    for key, below in schema.items():
        if key in _MAPS and isinstance(below, dict):
            found[key] = {name: spelled_out(one) for name, one in below.items()}
        elif key in _LISTS and isinstance(below, list):
            found[key] = list(map(spelled_out, below))
        elif key in _SINGLE:
            found[key] = spelled_out(below)
    return found


def _alternatives(values: list[Any]) -> dict[str, Any]:
    nested = [_same(value) for value in values if isinstance(value, dict | list)]
    simple = [value for value in values if not isinstance(value, dict | list)]
    if not nested:
        return {"enum": values}
    return {"anyOf": [*([{"enum": simple}] if simple else []), *nested]}


def _same(value: Any) -> dict[str, Any]:
    """Return a schema that only this value satisfies."""
    if isinstance(value, list):
        size = len(value)
        items = {"prefixItems": list(map(_same, value)), "items": False, "minItems": size} if value else {}
        return {"type": "array", **items, "maxItems": size}
    if isinstance(value, dict):
        parts = {name: _same(below) for name, below in value.items()}
        return {"type": "object", "properties": parts, "required": [*value], "additionalProperties": False}
    return {"enum": [value]}
