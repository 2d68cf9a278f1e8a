"""Subschemas and references of a schema. Nothing is fetched.

Keywords with subschemas of all drafts from 4 to 2020-12 are followed together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from gencli.structured.deadline import NEVER, Deadline
from gencli.structured.errors import SchemaError
from gencli.structured.schema.groups import LISTED, MAPPED, SINGLE
from gencli.structured.schema.pointers import child, descend, keys_of

__all__ = ["References", "find_cycle", "find_loop", "longest_chain", "refs_in", "resolve", "walk"]

_REFS = ("$ref", "$dynamicRef", "$recursiveRef")
_ONE = SINGLE | {"contentSchema"}
_MAP = MAPPED | {"$defs", "definitions"}
# Their subschemas apply to the same value as the schema that contains them.
_IN_PLACE = frozenset("allOf anyOf dependencies dependentSchemas else if not oneOf then".split())


def walk(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield each subschema with its JSON pointer, the schema itself first, in the order of the text.

    Schemas found only through a reference, as in OpenAPI's #/components, come last. Broken references are
    ignored.
    """
    references = References(schema)
    refs: deque[tuple[str, str]] = deque()
    seen: set[str] = set()
    stack = [("", schema)]
    while stack:
        pointer, here = stack.pop()
        if pointer not in seen:
            seen.add(pointer)
            yield pointer, here
            if isinstance(here, dict):
                stack.extend(reversed([(pointer + step, below) for _, step, below in _below(here)]))
                refs.extend((ref, pointer) for _, ref in refs_in(here))
        while refs and not stack:
            with suppress(SchemaError):
                stack.append(references.resolve(*refs.popleft()))


def refs_in(schema: Any) -> list[tuple[str, str]]:
    """Return (keyword, reference) of each reference directly in a schema."""
    found = [(keyword, schema.get(keyword)) for keyword in _REFS] if isinstance(schema, dict) else []
    return [(keyword, ref) for keyword, ref in found if isinstance(ref, str)]


def _below(schema: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield (keyword, relative JSON pointer, subschema) for the subschemas directly below."""
    for keyword, value in schema.items():
        found: list[tuple[str, Any]] = []
        if keyword in _ONE and not isinstance(value, list):
            found = [(child("", keyword), value)]
        elif keyword in LISTED and isinstance(value, list):
            found = [(child("", keyword, index), item) for index, item in enumerate(value)]
        elif keyword in _MAP and isinstance(value, dict):
            found = [(child("", keyword, key), item) for key, item in value.items()]
        yield from ((keyword, step, below) for step, below in found if isinstance(below, dict | bool))


def resolve(root: Any, ref: str, base_pointer: str = "") -> tuple[str, Any]:
    """Return the pointer and the schema that `ref` leads to from the subschema at `base_pointer`.

    A $dynamicRef or $recursiveRef is resolved without a dynamic scope. Raises SchemaError if the reference is
    remote or broken. For many references of one schema, reuse one `References`.
    """
    return References(root).resolve(ref, base_pointer)


class References:
    """The named places of a schema: $id, $anchor and $dynamicAnchor."""

    def __init__(self, root: Any) -> None:
        self._root = root
        draft = root.get("$schema") if isinstance(root, dict) else None
        self._id = "id" if isinstance(draft, str) and "draft-04" in draft else "$id"
        self._named: dict[str, str] | None = None

    def resolve(self, ref: str, base_pointer: str = "") -> tuple[str, Any]:
        """Return the pointer and the schema that `ref` leads to from `base_pointer`. Raises SchemaError."""
        pointer, base = self._resource(base_pointer)
        uri, fragment = urldefrag(ref)
        if uri:
            base = urljoin(base, uri)
            if base not in self._places():
                raise self._fault(ref, base_pointer, "is not in this schema, and nothing is fetched")
            pointer = self._places()[base]
        fragment = unquote(fragment)
        if not fragment or fragment.startswith("/"):
            return self._schema(pointer + fragment, ref, base_pointer)
        named = f"{base}#{fragment}"
        if named not in self._places():
            raise self._fault(ref, base_pointer, f"names {fragment!r}, which no $anchor has")
        return self._schema(self._places()[named], ref, base_pointer)

    def absolute(self, ref: str, base_pointer: str) -> str:
        """Return the URI of a reference, without its fragment."""
        return urljoin(self._resource(base_pointer)[1], urldefrag(ref).url)

    def is_in_root(self, pointer: str) -> bool:
        """Whether no schema at or above a place, but the root, has a URI of its own."""
        return not self._resource(pointer)[0]

    def has(self, uri: str) -> bool:
        """Whether a schema inside has this URI."""
        return uri in self._places()

    def at(self, pointer: str) -> Any:
        """Return the value at a pointer. Raises KeyError if there is none, ValueError if it is no pointer."""
        here = self._root
        for key in keys_of(pointer):
            here = descend(here, key)
        return here

    def _schema(self, pointer: str, ref: str, base_pointer: str) -> tuple[str, Any]:
        try:
            here = self.at(pointer)
        except (KeyError, ValueError):
            raise self._fault(ref, base_pointer, "leads nowhere") from None
        if not isinstance(here, dict | bool):
            raise self._fault(ref, base_pointer, "leads to a value that is no schema")
        return pointer, here

    def _fault(self, ref: str, base_pointer: str, what: str) -> SchemaError:
        keyword = next((key for key, here in refs_in(self.at(base_pointer)) if here == ref), "$ref")
        pointer = child(base_pointer, keyword)
        hint = "Put the schema it means under $defs and refer to it as #/$defs/NAME."
        return SchemaError(f"{pointer}: the reference {ref!r} {what}.", pointer=pointer, hint=hint)

    def _resource(self, pointer: str) -> tuple[str, str]:
        """Return the pointer and URI of a place's resource: the nearest $id above it."""
        here, at, found, base = self._root, "", "", ""
        for key in (None, *keys_of(pointer)):
            if key is not None:
                here, at = descend(here, key), child(at, key)
            if (name := self._identifier(here)) is not None:
                found, base = at, urljoin(base, name)
        return found, base

    def _identifier(self, schema: Any) -> str | None:
        name = schema.get(self._id) if isinstance(schema, dict) else None
        return urldefrag(name).url if isinstance(name, str) and not name.startswith("#") else None

    def _places(self) -> dict[str, str]:
        if self._named is None:
            self._named = dict(self._names())
        return self._named

    def _names(self) -> Iterator[tuple[str, str]]:
        """Yield (URI, pointer) of each named place."""
        stack = [("", "", self._root)]
        while stack:
            pointer, base, here = stack.pop()
            if not isinstance(here, dict):
                continue
            if (name := self._identifier(here)) is not None:
                base = urljoin(base, name)
                yield base, pointer
            if isinstance(old := here.get(self._id), str) and old.startswith("#"):
                yield base + old, pointer
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := here.get(keyword), str):
                    yield f"{base}#{anchor}", pointer
            stack.extend((pointer + step, base, below) for _, step, below in _below(here))


def find_cycle(root: Any, deadline: Deadline = NEVER) -> str | None:
    """Return the pointer of a schema that refers to itself for the same value; None if there is none."""
    references = References(root)
    starts = (pointer for pointer, _ in walk(root))
    return find_loop(starts, lambda pointer: deadline.watch(_same_value(references, pointer)))


def longest_chain(root: Any, deadline: Deadline = NEVER) -> tuple[int, str]:
    """Return the length of the longest chain of schemas for one value, and the pointer of its first schema.

    The schema has no cycle that `find_cycle` finds.
    """
    references, depths = References(root), dict[str, int]()
    for start, _ in walk(root):
        stack = [start]
        while stack:
            pointer = stack[-1]
            targets = deadline.watch(_same_value(references, pointer)) if pointer not in depths else ()
            if waiting := [target for target in targets if target not in depths]:
                stack += waiting
                continue
            stack.pop()
            if pointer not in depths:
                depths[pointer] = 1 + max(
                    map(depths.__getitem__, _same_value(references, pointer)), default=0
                )
    return max(
        ((depth, pointer) for pointer, depth in depths.items()), default=(0, ""), key=lambda one: one[0]
    )


def find_loop(starts: Iterable[str], next_of: Callable[[str], Iterable[str]]) -> str | None:
    """Return the first pointer that `next_of` leads back to, among those reached from `starts`; or None."""
    done: set[str] = set()
    for start in starts:
        path: set[str] = set()  # from `start` to the current place
        stack = [(start, False)]
        while stack:
            pointer, is_left = stack.pop()
            if is_left:
                path.remove(pointer)
                done.add(pointer)
            elif pointer in path:
                return pointer
            elif pointer not in done:
                path.add(pointer)
                stack.append((pointer, True))
                stack.extend((target, False) for target in next_of(pointer))
    return None


def _same_value(references: References, pointer: str) -> list[str]:
    """Return the pointers of the schemas that apply to the same value as this one."""
    schema = references.at(pointer)
    if not isinstance(schema, dict):
        return []
    targets = [references.resolve(ref, pointer)[0] for _, ref in refs_in(schema)]
    return targets + [pointer + step for keyword, step, _ in _below(schema) if keyword in _IN_PLACE]
