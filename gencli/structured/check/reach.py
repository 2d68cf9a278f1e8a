"""Which places of a document a schema can reach, to check paths given by other options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from gencli.structured.errors import SchemaError
from gencli.structured.schema.pointers import child, keys_of, shown
from gencli.structured.schema.published import with_published
from gencli.structured.schema.refs import References, refs_in
from processors.conditions.when import ANY_KEY

__all__ = ["unreached"]

_MOST = 256  # limit of alternatives followed; beyond it a path counts as reached
_NAMED = 12  # number of names listed in an error
_OPEN = frozenset("if then else dependencies dependentSchemas unevaluatedProperties unevaluatedItems".split())
_Value = tuple[Any, ...]  # the schemas that apply to one value at once


class _Unknown(Exception):
    """Whether the place is reached cannot be decided; it counts as reached."""


def unreached(schema: Any, pointer: str, *, is_open: bool) -> tuple[str, tuple[str, ...]] | None:
    """Return the pointer at which a path leaves the schema, and the names allowed there; None if reached.

    The segment * matches any key or index. `is_open`: objects may have properties that the schema does not
    name. Conditional keywords are not followed; what they may add counts as reached.
    """
    search, here, at = _Search(schema, is_open), [(schema,)], ""
    try:
        for key in keys_of(pointer):
            flat = [one for value in here for one in search.alternatives(value)]
            below = [found for one in flat for found in search.below(one, key)]
            below = [value for value in below if search.alternatives(value)]
            if not below:
                return shown(at), tuple(dict.fromkeys(name for one in flat for name in _names(one)))[:_NAMED]
            if len(below) > _MOST:
                return None
            here, at = below, child(at, key)
    except (_Unknown, SchemaError):
        return None
    return None


class _Search:
    def __init__(self, root: Any, is_open: bool) -> None:
        self._references, self._is_open = References(with_published(root)), is_open

    def alternatives(self, value: _Value) -> list[tuple[Mapping[str, Any], ...]]:
        """Return sets of schemas without references and combinations; a value satisfies one of the sets."""
        found: list[tuple[Mapping[str, Any], ...]] = [()]
        for schema in value:
            parts = list(self._expanded(schema))
            found = [(*one, *other) for one, other in product(found, parts)]
            if len(found) > _MOST:
                raise _Unknown
        return found

    def _expanded(self, schema: Any) -> Iterator[tuple[Mapping[str, Any], ...]]:
        if not isinstance(schema, Mapping):
            if schema is not False:
                yield ()
            return
        if _OPEN & schema.keys():
            raise _Unknown
        all_of = [*schema.get("allOf", ()), *(self._references.resolve(ref)[1] for _, ref in refs_in(schema))]
        for rest in self.alternatives(tuple(all_of)):
            for either in self._either(schema.get("anyOf")):
                for other in self._either(schema.get("oneOf")):
                    yield (schema, *rest, *either, *other)

    def _either(self, schemas: Any) -> Iterator[tuple[Mapping[str, Any], ...]]:
        if schemas is None:
            yield ()
            return
        for schema in schemas:
            yield from self._expanded(schema)

    def below(self, schemas: tuple[Mapping[str, Any], ...], key: str) -> Iterator[_Value]:
        """Yield the schemas of each value at the key of a value that satisfies all of `schemas`."""
        if all(_allows(schema, "object") for schema in schemas):
            keys = _names(schemas) if key == ANY_KEY else [key]
            yield from filter(None, (self._property(schemas, name) for name in (*keys, *_unnamed(key))))
        if all(_allows(schema, "array") for schema in schemas) and (key == ANY_KEY or key.isdecimal()):
            places = range(_prefix(schemas) + 1) if key == ANY_KEY else [int(key[:9])]
            yield from filter(None, (_item(schemas, place) for place in places))

    def _property(self, schemas: Iterable[Mapping[str, Any]], name: str | None) -> _Value | None:
        """Return the schemas of a property, or of an unnamed one (None); None if it cannot exist."""
        found, is_named, has_names = list[Any](), False, False
        for schema in schemas:
            named = schema.get("properties", {})
            patterns = schema.get("patternProperties", {})
            matching = [patterns[one] for one in patterns if name is None or _matches(one, name)]
            has_names |= bool(named or patterns)
            if name in named or matching:
                is_named = True
                found += [*([named[name]] if name in named else []), *matching]
            elif "additionalProperties" in schema:
                is_named |= schema["additionalProperties"] is not False
                found.append(schema["additionalProperties"])
        if has_names and not is_named and not self._is_open:
            return None
        return (*found, True)


def _unnamed(key: str) -> tuple[None, ...]:
    return (None,) if key == ANY_KEY else ()


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return True


def _names(schemas: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for schema in schemas for name in schema.get("properties", {})))


def _allows(schema: Mapping[str, Any], kind: str) -> bool:
    """Whether a value of this kind, object or array, may satisfy the schema."""
    types = schema.get("type", kind)
    if kind not in ([types] if isinstance(types, str) else types):
        return False
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values is None or any(isinstance(value, dict if kind == "object" else list) for value in values)


def _prefix(schemas: Iterable[Mapping[str, Any]]) -> int:
    return max((len(_listed(schema)) for schema in schemas), default=0)


def _listed(schema: Mapping[str, Any]) -> list[Any]:
    items = schema.get("items")
    return items if isinstance(items, list) else list(schema.get("prefixItems", ()))


def _item(schemas: Iterable[Mapping[str, Any]], place: int) -> _Value | None:
    """Return the schemas of an item of an array; None if it cannot exist."""
    found: list[Any] = [True]
    for schema in schemas:
        if place >= schema.get("maxItems", place + 1):
            return None
        listed, items = _listed(schema), schema.get("items", True)
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        found.append(listed[place] if place < len(listed) else rest)
    return tuple(found)
