"""Contradictions: schemas that no value satisfies, as far as they are found without a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from gencli.structured.check.exclusions import RULES, TYPES, is_nothing, own_types
from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.schema.drafts import draft_of
from gencli.structured.schema.pointers import child
from gencli.structured.schema.refs import References, find_loop, refs_in

__all__ = ["Contradictions", "find_contradictions"]

_MAX_CHAIN = 30  # references and allOf followed to find the types of a value

_Fault = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Contradictions:
    """Places that no value satisfies, as (JSON pointer, fault).

    `fatal`: places that every value has to satisfy. `optional`: places of parts that a value need not have,
    such as a property that is not required.
    """

    fatal: tuple[_Fault, ...]
    optional: tuple[_Fault, ...]


def find_contradictions(root: Any, most: int, deadline: Deadline = NEVER) -> Contradictions:
    """Find at most `most` fatal contradictions; at most `most` optional ones if there are no fatal ones.

    The references of the schema have to be valid. Subschemas of `not` and of conditions are not searched, nor
    are alternatives while another one is possible.
    """
    search = _Search(root, deadline)
    fatal = tuple(islice(search.fatal(), most))
    return Contradictions(fatal, () if fatal else tuple(islice(search.optional(), most)))


class _Search:
    def __init__(self, root: Any, deadline: Deadline) -> None:
        self._root = root
        self._deadline = deadline
        self._references = References(root)
        self._draft = draft_of(root)
        self._types: dict[str, frozenset[str]] = {}
        self._seen: set[str] = set()

    def fatal(self) -> Iterator[_Fault]:
        if is_nothing(self._root):
            yield "", "this schema is false: nothing satisfies it"
        yield from self._faults([""], self._needed)
        yield from self._loops([""])

    def optional(self) -> Iterator[_Fault]:
        """Yield optional contradictions; call after `fatal` is exhausted."""
        yield from self._faults(list(self._seen), lambda *here: (*self._needed(*here), *self._other(*here)))
        yield from self._loops(sorted(self._seen))

    def _loops(self, starts: list[str]) -> Iterator[_Fault]:
        if (loop := find_loop(starts, self._musts)) is not None:
            yield loop, "a value would have to contain itself, so it would never end"

    def _faults(
        self, starts: list[str], below: Callable[[str, dict[str, Any]], Iterable[str]]
    ) -> Iterator[_Fault]:
        """Yield the faults of the places that `below` leads to; known places are only traversed."""
        stack, done = starts, set[str]()
        while stack:
            pointer = stack.pop()
            schema = self._at(pointer)
            if pointer not in done and isinstance(schema, dict):
                done.add(pointer)
                if pointer not in self._seen:
                    self._seen.add(pointer)
                    yield from self._local(pointer, schema)
                stack.extend(reversed(list(below(pointer, schema))))

    def _at(self, pointer: str) -> Any:
        """Return the schema at a pointer, reduced to the keywords that its draft uses."""
        self._deadline.check()
        schema = self._references.at(pointer)
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema and self._draft.name in (
            "4",
            "6",
            "7",
        ):  # these drafts ignore keywords next to $ref
            return {"$ref": schema["$ref"]}
        return {key: value for key, value in schema.items() if key in self._draft.judged()}

    def _local(self, pointer: str, schema: dict[str, Any]) -> Iterator[_Fault]:
        for rule in RULES:
            yield from ((child(pointer, keyword), text) for keyword, text in rule(schema))
        parts = self._type_parts(pointer, schema, 0)
        if all(parts) and not frozenset.intersection(*parts):
            at = next((key for key in ("allOf", "$ref", "enum", "const") if key in schema), "type")
            yield child(pointer, at), "no value has all the types that are asked for"
        for keyword in ("anyOf", "oneOf"):
            pointers = _branches(pointer, schema, keyword)
            if pointers and all(self._is_impossible(below) for below in pointers):
                yield child(pointer, keyword), "none of the alternatives can be satisfied"

    def _is_impossible(self, pointer: str) -> bool:
        schema = self._at(pointer)
        if not isinstance(schema, dict) or is_nothing(schema):
            return is_nothing(schema)
        return any(True for rule in RULES for _ in rule(schema)) or not self._types_of(pointer, 0)

    def _needed(self, pointer: str, schema: dict[str, Any]) -> Iterator[str]:
        """Yield the subschemas for the same value, and for required parts of it."""
        for _, ref in refs_in(schema):
            yield self._references.resolve(ref, pointer)[0]
        yield from _branches(pointer, schema, "allOf")
        for keyword in ("anyOf", "oneOf"):
            possible = self._possible(pointer, schema, keyword)
            yield from possible if len(possible) == 1 else ()
        required = set() if isinstance(schema.get("required"), bool) else set(schema.get("required", ()))
        yield from (
            child(pointer, "properties", key) for key in schema.get("properties", ()) if key in required
        )
        heads = next((key for key in ("prefixItems", "items") if isinstance(schema.get(key), list)), "")
        least, num_heads = schema.get("minItems", 0), len(schema[heads]) if heads else 0
        yield from (child(pointer, heads, n) for n in range(min(int(least), num_heads)))
        if least > num_heads and isinstance(schema.get("items"), dict):
            yield child(pointer, "items")
        if isinstance(schema.get("contains"), dict) and schema.get("minContains", 1) > 0:
            yield child(pointer, "contains")

    def _other(self, pointer: str, schema: dict[str, Any]) -> Iterator[str]:
        """Yield the subschemas of alternatives, and of optional parts of a value."""
        for keyword in ("anyOf", "oneOf"):
            yield from self._possible(pointer, schema, keyword)
        for keyword in ("prefixItems", "items"):
            if isinstance(schema.get(keyword), list):
                yield from _branches(pointer, schema, keyword)
        for keyword in ("properties", "patternProperties"):
            yield from (child(pointer, keyword, key) for key in schema.get(keyword, ()))
        for keyword in ("items", "additionalProperties", "contains", "propertyNames"):
            if isinstance(schema.get(keyword), dict):
                yield child(pointer, keyword)

    def _possible(self, pointer: str, schema: dict[str, Any], keyword: str) -> list[str]:
        return [below for below in _branches(pointer, schema, keyword) if not self._is_impossible(below)]

    def _musts(self, pointer: str) -> Iterator[str]:
        """Yield the subschemas for the same value, and for parts that every value has."""
        schema = self._at(pointer)
        if not isinstance(schema, dict):
            return
        for _, ref in refs_in(schema):
            yield self._references.resolve(ref, pointer)[0]
        yield from _branches(pointer, schema, "allOf")
        if schema.get("type") == "object":
            needed = set(schema.get("required", ())) & set(schema.get("properties", ()))
            yield from (child(pointer, "properties", key) for key in sorted(needed))
        needs_more = schema.get("minItems", 0) > len(schema.get("prefixItems", ()))
        if schema.get("type") == "array" and needs_more and isinstance(schema.get("items"), dict):
            yield child(pointer, "items")

    def _types_of(self, pointer: str, depth: int) -> frozenset[str]:
        """Return the types that a value may have; integers count as numbers."""
        if pointer not in self._types:
            schema = self._at(pointer)
            if not isinstance(schema, dict) or depth > _MAX_CHAIN:
                return frozenset() if schema is False else TYPES
            parts = self._type_parts(pointer, schema, depth + 1)
            self._types[pointer] = frozenset.intersection(*parts)
        return self._types[pointer]

    def _type_parts(self, pointer: str, schema: dict[str, Any], depth: int) -> list[frozenset[str]]:
        """Return the types that each part of a schema allows; all parts have to allow the type of a value."""
        targets = [self._references.resolve(ref, pointer)[0] for _, ref in refs_in(schema)]
        targets += _branches(pointer, schema, "allOf")
        return [*own_types(schema), *(self._types_of(target, depth) for target in targets)]


def _branches(pointer: str, schema: dict[str, Any], keyword: str) -> list[str]:
    return [child(pointer, keyword, n) for n in range(len(schema.get(keyword, ())))]
