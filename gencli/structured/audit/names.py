"""Objects whose names are free: no back end remembers which of them came, so one may come twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gencli.structured.audit.groups import APPLICATORS, GROUPS, declared_types
from gencli.structured.plan import UNIQUE_NAMES, Finding
from gencli.structured.schema.refs import walk

__all__ = ["free_names", "once"]

_ELSEWHERE = frozenset((*APPLICATORS, "enum", "const"))
_NAMING = ("additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "type")


def free_names(schema: Any) -> Iterator[tuple[str, str]]:
    """(pointer, the keyword that leaves names free there, or "") of each such object in a schema."""
    for pointer, below in walk(schema):
        if below is True or (isinstance(below, dict) and _is_free(below)):
            named = below if isinstance(below, dict) else {}
            yield (
                pointer,
                next((keyword for keyword in _NAMING if named.get(keyword, False) is not False), ""),
            )


def _is_free(schema: dict[str, Any]) -> bool:
    """Whether an object that stands here, or in an array of anything, may have names of its own choice."""
    types = declared_types(schema) or {"object", "array"}
    if not schema.keys() & {"type", *GROUPS["object"], *GROUPS["array"]} and schema.keys() & _ELSEWHERE:
        return False
    if "array" in types and "items" not in schema and schema.get("maxItems", 1) > 0:
        return True
    if "object" not in types or schema.get("maxProperties", 2) < 2:
        return False
    rest = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
    return bool(schema.get("patternProperties")) or rest is not False


def once(pointer: str) -> Finding:
    """What is said of them."""
    return Finding(pointer, UNIQUE_NAMES, "check", "the mask lets a name that is free come twice")
