"""Schemas during rewriting: plain dictionaries that keep the origins of each keyword."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.errors import GiveUp
from gencli.structured.schema.drafts import draft_of
from gencli.structured.schema.formats import FORMATS
from gencli.structured.schema.groups import APPLICATORS, GROUPS, LISTED, MAPPED, SINGLE
from gencli.structured.schema.pointers import child
from gencli.structured.schema.refs import References

__all__ = [
    "ALSO",
    "AT",
    "FRACTION",
    "Flat",
    "Schema",
    "Scope",
    "key_of",
    "mark",
    "origins",
    "plain",
    "put",
    "without",
]

Schema = dict[str, Any] | bool
Flat = dict[str, Any]  # a schema without applicators for the same value, such as anyOf

AT = "\0at"  # the key of the origins: {keyword: frozenset of JSON pointers}
ALSO = "\0also"  # further flat schemas with one pattern or format each, which have to hold as well
FRACTION = "fraction"  # an internal type: numbers with a fractional part
_KNOWN = frozenset(
    ("type", "enum", "const", *APPLICATORS, *(key for keys in GROUPS.values() for key in keys))
)
_DEPTH = 60
_OLD = ("draft-03", "draft-04", "draft-06", "draft-07")


@dataclass(slots=True)
class Scope:
    """The context of one rewriting, and its findings so far."""

    root: Any
    backend: str
    extra: bool
    references: References
    notes: dict[str, str] = field(default_factory=dict)  # pointer -> how it was rewritten
    unsatisfiable: set[str] = field(default_factory=set)  # pointers of parts that no value satisfies
    left: dict[str, str] = field(default_factory=dict)  # pointer -> why it is left to the final check
    tight: dict[str, str] = field(default_factory=dict)  # pointer -> which valid values are not generated
    unbounded: set[str] = field(default_factory=set)  # pointers of formats without a maximum length
    any_order: bool = False
    deadline: Deadline = NEVER
    budget: int = 100_000  # nodes that may still be created
    reachable: set[str] = field(default_factory=set)  # pointers of reachable keywords
    orders: int = 2_000  # orders of properties that may still be written
    marked: dict[str, Schema] = field(default_factory=dict)  # pointer -> the schema with origins

    def note(self, pointers: Iterable[str], text: str) -> None:
        """Record how the keywords at these pointers were rewritten."""
        for pointer in pointers:
            self.notes.setdefault(pointer, text)

    def leave(self, pointers: Iterable[str], text: str) -> None:
        """Record why the keywords at these pointers are left to the final check."""
        for pointer in list(pointers) or [""]:  # a keyword created by a rewrite has no origin
            self.left.setdefault(pointer, text)

    def narrow(self, pointers: Iterable[str], text: str) -> None:
        """Record which valid values are not generated because of the keywords at these pointers."""
        for pointer in pointers:
            self.tight.setdefault(pointer, text)

    def spend(self, count: int = 1) -> None:
        """Count created nodes. Raises GiveUp if there are too many, and OutOfTime."""
        self.deadline.check()
        self.budget -= count
        if self.budget < 0:
            raise GiveUp("the schema becomes too large")

    def target(self, pointer: str) -> Schema:
        """Return the target schema of a reference."""
        if pointer not in self.marked:
            self.marked[pointer] = mark(self.references.at(pointer), pointer, self)
        return self.marked[pointer]

    @property
    def is_old(self) -> bool:
        """Whether the draft ignores keywords next to a $ref."""
        draft = self.root.get("$schema") if isinstance(self.root, dict) else None
        return isinstance(draft, str) and any(name in draft for name in _OLD)


def mark(schema: Any, pointer: str, scope: Scope, depth: int = 0) -> Schema:
    """Return a copy with origins, without annotations and unknown keywords; each $ref is a JSON pointer."""
    if isinstance(schema, bool):
        return schema
    if depth > _DEPTH:
        raise GiveUp("the schema is too deep")
    scope.spend()
    dynamic = _plain_reference(schema, pointer, scope)
    schema = {"$ref" if key == dynamic else key: below for key, below in schema.items()}
    kept = [keyword for keyword in schema if keyword in _KNOWN]
    if "format" in kept and schema["format"] not in FORMATS:
        kept.remove("format")
    if "$ref" in kept and scope.is_old:
        scope.note(
            (child(pointer, key) for key in kept if key != "$ref"), "ignored beside $ref in this draft"
        )
        kept = ["$ref"]
    if "contains" in kept and "contains" not in draft_of(scope.root).judged():
        kept.remove("contains")
        scope.leave([child(pointer, "contains")], "not a keyword of this draft")
    places = {key: dynamic if key == "$ref" and dynamic else key for key in kept}
    node: Flat = {AT: {key: frozenset([child(pointer, place)]) for key, place in places.items()}}
    scope.reachable.update(child(pointer, place) for place in places.values())
    for keyword in kept:
        value, place = schema[keyword], child(pointer, keyword)
        if keyword == "$ref":
            value = scope.references.resolve(value, pointer)[0]
        elif keyword in SINGLE and isinstance(value, dict | bool):
            value = mark(value, place, scope, depth + 1)
        elif keyword in LISTED and isinstance(value, list):
            value = [mark(item, child(place, index), scope, depth + 1) for index, item in enumerate(value)]
        elif keyword in MAPPED:
            value = {
                name: below if isinstance(below, list) else mark(below, child(place, name), scope, depth + 1)
                for name, below in value.items()
            }
        node[keyword] = value
    return node


def _plain_reference(schema: dict[str, Any], pointer: str, scope: Scope) -> str:
    """Return the keyword of a dynamic reference that leads to the same place for every value, or "".

    It does if its anchor occurs only once, or is at the root, where every validation begins.
    """
    if "$ref" in schema or not schema.keys() & {"$dynamicRef", "$recursiveRef"}:
        return ""
    is_in_root = scope.references.is_in_root(pointer)
    if schema.get("$recursiveRef") == "#" and is_in_root and draft_of(scope.root).name == "2019-09":
        return "$recursiveRef"
    name = str(schema.get("$dynamicRef", "")).removeprefix("#")
    is_top = is_in_root and scope.root.get("$dynamicAnchor") == name
    is_alone = name.isidentifier() and sum(_anchors(scope.root, name)) <= 1
    return "$dynamicRef" if is_top or is_alone else ""


def _anchors(value: Any, name: str) -> Iterator[int]:
    if isinstance(value, dict):
        yield (value.get("$dynamicAnchor") == name) + 2 * ("$id" in value)
    if isinstance(value, dict | list):
        for below in value.values() if isinstance(value, dict) else value:
            yield from _anchors(below, name)


def put(node: Flat, keyword: str, value: Any, places: Iterable[str] = ()) -> Flat:
    """Return a copy with another value of a keyword, and more origins for the keyword."""
    at = node.get(AT, {})
    return {**node, keyword: value, AT: {**at, keyword: at.get(keyword, frozenset()) | frozenset(places)}}


def without(node: Flat, *keywords: str) -> Flat:
    """Return a copy without some keywords."""
    at = {key: places for key, places in node.get(AT, {}).items() if key not in keywords}
    return {**{key: value for key, value in node.items() if key not in keywords}, AT: at}


def origins(value: Any) -> frozenset[str]:
    """Return the origins of a schema and of all schemas below it."""
    return frozenset(_origins(value))


def _origins(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            if key == AT:
                for places in below.values():
                    yield from places
            else:
                yield from _origins(below)
    elif isinstance(value, list):
        for item in value:
            yield from _origins(item)


def plain(value: Any) -> Any:
    """Return the schema without its origins."""
    if isinstance(value, dict):
        found = {key: plain(below) for key, below in value.items() if key not in (AT, ALSO)}
        return {**found, "allOf": plain(value[ALSO])} if value.get(ALSO) else found
    return [plain(item) for item in value] if isinstance(value, list) else value


def key_of(value: Any) -> str:
    """Return a text that is equal for schemas that are equal apart from origins."""
    return json.dumps(plain(value), sort_keys=True)
