"""`Guide`: the texts of a JSON schema that lead to short documents, and how much these may grow at once."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from processors.constraint import Constraint
from processors.grammar.state.pattern_samples import sample

__all__ = ["Guide", "guide_of"]

_TRIED = 64  # most texts tried at one place
_PASSES = 16  # most passes over the schemas to find the lengths of those that refer to others
_FORMAT = 36  # bytes of a text with a format, such as a UUID
_NUMBERS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_ONE = ("additionalProperties", "contains", "items", "unevaluatedItems", "unevaluatedProperties")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("$defs", "definitions", "patternProperties", "properties")


@dataclass(frozen=True, slots=True, eq=False)
class Guide:
    """Names of properties and listed texts, as in a string, those first that lead to a short document.

    `growth`: bytes of the longest shortest value among the parts that a value need not have: properties that
    are not required, items, branches. A token that begins one makes a short completion about so much longer.
    """

    names: tuple[bytes, ...] = ()
    values: tuple[bytes, ...] = ()
    growth: int = 0

    def rests(self, text: bytes, *, of_names: bool) -> Iterator[bytes]:
        """Yield the rests of the listed texts that begin like the string at the end of `text`.

        Names that the text already has come last: an object has a name once.
        """
        begun = text[text.rfind(b'"') + 1 :]
        fitting = [one for one in (self.names if of_names else self.values) if one.startswith(begun)]
        if of_names:
            fitting.sort(key=lambda one: b'"' + one + b'"' in text)
        return (one[len(begun) :] for one in islice(fitting, _TRIED))


def guide_of(constraint: Constraint) -> Guide:
    """Return the guide of a JSON schema, an empty one for any other grammar."""
    if constraint.kind != "json_schema":
        return Guide()
    return _Lengths(json.loads(constraint.text)).guide()


class _Lengths:
    """The bytes of a short value of each schema in a schema; infinite if none is known to end."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._schemas = list(_schemas(root))
        self._of = dict.fromkeys(map(id, self._schemas), math.inf)
        self._sample = cache(sample)
        for _ in range(_PASSES):
            # Inner schemas come after outer ones.
            news = [self._update(schema) for schema in reversed(self._schemas)]
            if not any(news):
                break

    def guide(self) -> Guide:
        names, values = dict[str, tuple[bool, float]](), set[str]()
        for schema in self._schemas:
            required = schema.get("required", ())
            for name, below in _mapping(schema, "properties").items():
                rank = (name not in required, len(name) + 4 + self._length(below))
                names[name] = min(names.get(name, rank), rank)
            listed = [*_listed(schema, "enum"), schema.get("const")]
            values.update(value for value in listed if isinstance(value, str))
        lengths = [length for schema in self._schemas for length in self._optional(schema)]
        return Guide(
            tuple(map(_spelled, sorted(names, key=lambda name: (names[name], name)))),
            tuple(map(_spelled, sorted(values, key=lambda value: (len(value), value)))),
            int(max((length for length in lengths if length < math.inf), default=0)),
        )

    def _optional(self, schema: dict[str, Any]) -> Iterator[float]:
        """Yield by how much each part that a value need not have makes the shortest value longer."""
        required = schema.get("required", ())
        for name, below in _mapping(schema, "properties").items():
            yield len(name) + 4 + self._length(below) if name not in required else 0
        yield from (4 + self._length(below) for below in _mapping(schema, "patternProperties").values())
        yield from (4 + self._length(schema[key]) for key in _ONE if key in schema)
        for key in ("anyOf", "oneOf"):
            lengths = [self._length(below) for below in _listed(schema, key)]
            yield from (length - min(lengths) for length in lengths if length < math.inf)

    def _update(self, schema: dict[str, Any]) -> bool:
        before, self._of[id(schema)] = self._of[id(schema)], self._shortest(schema)
        return before != self._of[id(schema)]

    def _length(self, schema: Any) -> float:
        return self._of.get(id(schema), 1.0)

    def _shortest(self, schema: dict[str, Any]) -> float:
        if "const" in schema:
            return len(json.dumps(schema["const"], ensure_ascii=False).encode())
        if "enum" in schema:
            return min(
                (len(json.dumps(one, ensure_ascii=False).encode()) for one in schema["enum"]), default=1
            )
        parts = [self._length(self._target(schema["$ref"]))] if "$ref" in schema else []
        parts += [min(map(self._length, schema[key])) for key in ("anyOf", "oneOf") if _listed(schema, key)]
        parts += map(self._length, _listed(schema, "allOf"))
        if "type" in schema or not parts:
            types = schema.get("type", "object" if "properties" in schema else "number")
            parts.append(
                min(self._of_type(schema, one) for one in ([types] if isinstance(types, str) else types))
            )
        return max(parts)

    def _of_type(self, schema: dict[str, Any], kind: str) -> float:
        if kind == "string":
            pattern = schema.get("pattern")
            text = self._sample(pattern) if isinstance(pattern, str) else None
            length = len(text) if text is not None else _FORMAT if "format" in schema else 0
            return 2 + max(length, int(schema.get("minLength", 0)))
        if kind in ("integer", "number"):
            return max((len(str(schema[key])) for key in _NUMBERS if key in schema), default=1)
        if kind == "array":
            heads = _listed(schema, "prefixItems")
            least = int(schema.get("minItems", 0))
            items = [self._length(one) for one in heads[:least]]
            if not least and "contains" in schema:
                items, least = [self._length(schema["contains"])], 1
            more = least - len(items)
            rest = more * self._length(schema.get("items")) if more else 0
            return 2 + sum(items) + rest + max(0, least - 1)
        if kind == "object":
            below = _mapping(schema, "properties")
            needed = [len(name) + 3 + self._length(below.get(name)) for name in schema.get("required", ())]
            more = int(schema.get("minProperties", 0)) - len(needed)
            others = more * (5 + self._length(schema.get("additionalProperties"))) if more > 0 else 0
            return 2 + sum(needed) + max(0, len(needed) - 1) + others
        return 4

    def _target(self, ref: Any) -> Any:
        here = self._root
        for key in str(ref).split("/")[1:]:
            here = here.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(here, dict) else None
        return here


def _schemas(root: Any) -> Iterator[dict[str, Any]]:
    """Yield all schemas in a schema, the outer ones first."""
    waiting = [root]
    for schema in waiting:
        if isinstance(schema, dict):
            yield schema
            waiting += [schema[key] for key in _ONE if key in schema]
            waiting += [below for key in _LISTS for below in _listed(schema, key)]
            waiting += [below for key in _MAPS for below in _mapping(schema, key).values()]


def _mapping(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _listed(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _spelled(text: str) -> bytes:
    """Return the text as in a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="replace")
