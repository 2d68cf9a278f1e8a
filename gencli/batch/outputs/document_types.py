"""Types of the properties of a JSON schema's documents, as columns of a table have them.

A type is read from the schema alone, so that it does not depend on the documents that are written. A property
without one regular type is JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gencli.batch.outputs.base import ListOf, StructOf, Type
from gencli.errors import UsageError
from gencli.structured.json_schema import References, declared_types, refs_in, with_published
from gencli.structured.schema_errors import SchemaError, child

__all__ = ["property_types"]

_MAX_COLUMNS = 1000
_MAX_DEPTH = 32  # subschemas above one; a schema that contains itself is deeper
_MAX_PARTS = 1000  # subschemas of a property
_MAX_WORK = 100_000  # subschemas of all properties

_Types = frozenset[Type] | None  # the types of a value that is not null; None: any
_JSON: frozenset[Type] = frozenset({"json"})
_NAMES: Mapping[str, Type] = {
    "boolean": "boolean",
    "integer": "integer",
    "number": "number",
    "string": "text",
}
_OF_OBJECTS = ("properties", "patternProperties")
_CONDITIONS = ("if", "dependentSchemas", "dependencies")  # may add properties to an object


def property_types(schema: Any, *, is_open: bool) -> dict[str, Type]:
    """Return the type of each property of a schema's documents, in the order of the schema; {} without any.

    `is_open`: objects may have properties that their schema does not name. Raises UsageError for a schema
    with more properties than a table takes columns.
    """
    reader = _Reader(with_published(schema), is_open=is_open)
    return {name: _one(types) for name, types in reader.properties("", 0).items()}


class _Reader:
    """Reads types from the subschemas of one schema, which are named by their JSON pointers."""

    def __init__(self, schema: Any, *, is_open: bool) -> None:
        self._references, self._is_open = References(schema), is_open
        self._work, self._parts = _MAX_WORK, 0

    def properties(self, pointer: str, depth: int) -> dict[str, _Types]:
        """Return the types of the properties of the objects of a schema, also of those that it refers to."""
        schema = self._references.at(pointer)
        self._work -= 1
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return {}
        found: dict[str, _Types] = {}
        for name in schema.get("properties", {}):
            self._parts = _MAX_PARTS
            found[name] = self._types(child(pointer, "properties", name), 0)
        if len(found) > _MAX_COLUMNS or self._work < 0:
            raise UsageError(
                f"`columns`: a table has at most {_MAX_COLUMNS} columns of a schema, and this one has more.",
                hint="Leave `columns` out; the documents are in the column text.",
            )
        for target in self._also(pointer, schema):
            for name, types in self.properties(target, depth + 1).items():
                found[name] = _both(found.get(name), types)
        for keyword in ("anyOf", "oneOf"):
            branches = [self.properties(branch, depth + 1) for branch in _each(pointer, schema, keyword)]
            for name in dict.fromkeys(name for branch in branches for name in branch):
                either = _either(branch[name] for branch in branches if name in branch)
                found[name] = _both(found.get(name), either)
        return found

    def _types(self, pointer: str, depth: int) -> _Types:
        """Return the types of a schema's values."""
        schema = self._references.at(pointer)
        self._parts -= 1
        self._work -= 1
        if depth > _MAX_DEPTH or min(self._parts, self._work) < 0:
            return _JSON
        if not isinstance(schema, Mapping):
            return None if schema else frozenset()
        types = self._declared(pointer, schema, depth)
        try:
            for target in self._also(pointer, schema):
                types = _both(types, self._types(target, depth + 1))
        except SchemaError:  # it leads out of the schema
            return _JSON
        for keyword in ("anyOf", "oneOf"):
            if branches := _each(pointer, schema, keyword):
                types = _both(types, _either(self._types(branch, depth + 1) for branch in branches))
        return types

    def _declared(self, pointer: str, schema: Mapping[str, Any], depth: int) -> _Types:
        """Return the types by `type`, `enum` and `const`."""
        types: _Types = None
        if "type" in schema:
            types = frozenset(
                self._array(pointer, schema, depth)
                if name == "array"
                else self._object(pointer, schema, depth)
                if name == "object"
                else _NAMES[name]
                for name in declared_types(dict(schema)) - {"null"}
            )
        elif any(
            schema.get(keyword) for keyword in _OF_OBJECTS
        ):  # objects and, by the standard, anything else
            types = _JSON
        for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
            if values is not None:
                types = _both(types, frozenset(_type_of(value) for value in values if value is not None))
        return types

    def _array(self, pointer: str, schema: Mapping[str, Any], depth: int) -> Type:
        items, first = schema.get("items"), _each(pointer, schema, "prefixItems")
        parts = [self._types(part, depth + 1) for part in first]
        if isinstance(items, Mapping):
            parts.append(self._types(child(pointer, "items"), depth + 1))
        elif items is not False and not (items is None and first and schema.get("maxItems") == len(first)):
            return "json"
        item = _one(_either(parts))
        return "json" if item == "json" else ListOf(item)

    def _object(self, pointer: str, schema: Mapping[str, Any], depth: int) -> Type:
        extra = schema.get("additionalProperties", self._is_open)
        is_closed = extra is False and schema.get("unevaluatedProperties", False) is False
        if not is_closed or schema.get("patternProperties") or any(key in schema for key in _CONDITIONS):
            return "json"
        fields = {
            name: _one(self._types(child(pointer, "properties", name), depth + 1))
            for name in schema.get("properties", {})
        }
        return "json" if not fields or "json" in fields.values() else StructOf(tuple(fields.items()))

    def _also(self, pointer: str, schema: Mapping[str, Any]) -> list[str]:
        """Return the schemas that hold for the same value. Raises SchemaError if one is elsewhere."""
        targets = [self._references.resolve(ref, pointer)[0] for _, ref in refs_in(schema)]
        return [*targets, *_each(pointer, schema, "allOf")]


def _each(pointer: str, schema: Mapping[str, Any], keyword: str) -> list[str]:
    """Return the pointers of a keyword's list of subschemas."""
    return [child(pointer, keyword, index) for index in range(len(schema.get(keyword, ())))]


def _both(one: _Types, other: _Types) -> _Types:
    """Return the types of values that have types of both."""
    if one is None or other is None:
        return other if one is None else one
    if "json" in one | other or (_nested(one) and _nested(other) and _nested(one) != _nested(other)):
        return _JSON
    common = one & other
    is_whole = {"integer", "number"} <= one | other and "number" not in common
    return common | {"integer"} if is_whole else common


def _nested(types: frozenset[Type]) -> frozenset[Type]:
    return frozenset(type_ for type_ in types if not isinstance(type_, str))


def _either(each: Iterable[_Types]) -> _Types:
    """Return the types of values that have a type of one of these."""
    found: frozenset[Type] = frozenset()
    for types in each:
        if types is None:
            return None
        found |= types
    return found


def _one(types: _Types) -> Type:
    """Return the type of a column for values of these types."""
    if types == frozenset[Type]({"integer", "number"}):
        return "number"
    return next(iter(types)) if types is not None and len(types) == 1 else "json"


def _type_of(value: Any) -> Type:
    """Return the type of a value that a schema names."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "number"
    return "text" if isinstance(value, str) else "json"
