"""Texts that lead to short documents: `Guide` has those of a JSON schema, and how much they may grow at
once, with sample texts of patterns; `SearchBudget` is the budget of searches for them.
"""

from __future__ import annotations

import json
import math
import re
import re._constants as ops  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import compress, islice
from typing import Any

from processors.request_values import Constraint

SLACK = 48  # least number of tokens left beyond a completion below which masks are narrowed
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
    `samples`: texts that strings of the grammar may end with.
    """

    names: tuple[bytes, ...] = ()
    values: tuple[bytes, ...] = ()
    growth: int = 0
    samples: tuple[str, ...] = ()

    @property
    def slack(self) -> int:
        """Tokens by which one token may make the shortest completion longer."""
        return max(SLACK, self.growth)

    def rests(self, text: bytes, *, of_names: bool) -> Iterator[bytes]:
        """Yield the rests of the listed texts that begin like the string at the end of `text`.

        Names that the text already has come last: an object has a name once.
        """
        begun = text[text.rfind(b'"') + 1 :]
        fitting = [text for text in (self.names if of_names else self.values) if text.startswith(begun)]
        if of_names:
            fitting.sort(key=lambda name: b'"' + name + b'"' in text)
        return (whole[len(begun) :] for whole in islice(fitting, _TRIED))


def guide_of(constraint: Constraint) -> Guide:
    """Return the guide of a grammar; the texts and the growth are those of a JSON schema."""
    is_schema = constraint.kind == "json_schema"
    guide = _ShortestLengths(json.loads(constraint.text)).guide() if is_schema else Guide()
    return replace(guide, samples=samples_of(constraint))


class _ShortestLengths:
    """The bytes of a short value of each schema in a schema; infinite if none is known to end."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._schemas = list(_schemas(root))
        self._of = dict.fromkeys(map(id, self._schemas), math.inf)
        self._sample = cache(sample)
        for _ in range(_PASSES):
            before = dict(self._of)
            for schema in reversed(self._schemas):  # inner schemas come after outer ones
                self._of[id(schema)] = self._shortest(schema)
            if self._of == before:
                break

    def guide(self) -> Guide:
        names, values = dict[str, tuple[bool, float]](), set[str]()
        for schema in self._schemas:
            required = schema.get("required", ())
            for name, below in _typed(schema, "properties", dict).items():
                rank = (name not in required, len(name) + 4 + self._length(below))
                names[name] = min(names.get(name, rank), rank)
            listed = [*_typed(schema, "enum", list), schema.get("const")]
            values.update(value for value in listed if isinstance(value, str))
        lengths = (length for schema in self._schemas for length in self._optional(schema))
        return Guide(
            tuple(map(_spelled, sorted(names, key=lambda name: (names[name], name)))),
            tuple(map(_spelled, sorted(values, key=lambda value: (len(value), value)))),
            int(max((length for length in lengths if length < math.inf), default=0)),
        )

    def _optional(self, schema: dict[str, Any]) -> Iterator[float]:
        """Yield by how much each part that a value need not have makes the shortest value longer."""
        required = schema.get("required", ())
        for name, below in _typed(schema, "properties", dict).items():
            yield len(name) + 4 + self._length(below) if name not in required else 0
        yield from (4 + self._length(below) for below in _typed(schema, "patternProperties", dict).values())
        yield from (4 + self._length(schema[key]) for key in _ONE if key in schema)
        for key in ("anyOf", "oneOf"):
            lengths = [self._length(below) for below in _typed(schema, key, list)]
            yield from (length - min(lengths) for length in lengths if length < math.inf)

    def _length(self, schema: Any) -> float:
        return self._of.get(id(schema), 1.0)

    def _shortest(self, schema: dict[str, Any]) -> float:
        if "const" in schema:
            return _bytes_of(schema["const"])
        if "enum" in schema:
            return min((_bytes_of(value) for value in schema["enum"]), default=1)
        parts = list[float]()
        if "$ref" in schema:
            target = self._root
            for key in str(schema["$ref"]).split("/")[1:]:
                name = key.replace("~1", "/").replace("~0", "~")
                target = target.get(name) if isinstance(target, dict) else None
            parts = [self._length(target)]
        parts += [
            min(map(self._length, schema[key])) for key in ("anyOf", "oneOf") if _typed(schema, key, list)
        ]
        parts += map(self._length, _typed(schema, "allOf", list))
        if "type" in schema or not parts:
            types = schema.get("type", "object" if "properties" in schema else "number")
            kinds = [types] if isinstance(types, str) else types
            parts.append(min(self._of_type(schema, kind) for kind in kinds))
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
            heads = _typed(schema, "prefixItems", list)
            least = int(schema.get("minItems", 0))
            items = [self._length(head) for head in heads[:least]]
            if not least and "contains" in schema:
                items, least = [self._length(schema["contains"])], 1
            more = least - len(items)
            more_length = more * self._length(schema.get("items")) if more else 0
            return 2 + sum(items) + more_length + max(0, least - 1)
        if kind == "object":
            below = _typed(schema, "properties", dict)
            needed = [len(name) + 3 + self._length(below.get(name)) for name in schema.get("required", ())]
            more = int(schema.get("minProperties", 0)) - len(needed)
            others = more * (5 + self._length(schema.get("additionalProperties"))) if more > 0 else 0
            return 2 + sum(needed) + max(0, len(needed) - 1) + others
        return 4


def _schemas(root: Any) -> Iterator[dict[str, Any]]:
    """Yield all schemas in a schema, the outer ones first."""
    waiting = [root]
    for schema in waiting:
        if isinstance(schema, dict):
            yield schema
            waiting += [schema[key] for key in _ONE if key in schema]
            waiting += [below for key in _LISTS for below in _typed(schema, key, list)]
            waiting += [below for key in _MAPS for below in _typed(schema, key, dict).values()]


def _bytes_of(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _typed(schema: dict[str, Any], keyword: str, kind: type) -> Any:
    return value if isinstance(value := schema.get(keyword), kind) else kind()


def _spelled(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="replace")


_MOST = 32  # patterns of one schema
_LONGEST_PATTERN = 4096  # characters of a pattern
_LONGEST = 64  # characters of a sample
_TRIED_SIGNS = "a0A-._ @/:b1"  # characters tried for a negated set
_OF_CATEGORY = {ops.CATEGORY_DIGIT: "0", ops.CATEGORY_SPACE: " ", ops.CATEGORY_WORD: "a"}


def samples_of(constraint: Constraint) -> tuple[str, ...]:
    """Return a sample for each regular expression of a grammar, escaped as in a string if inside JSON."""
    if constraint.kind == "regex":
        return tuple(filter(None, [sample(constraint.text)]))
    if constraint.kind != "json_schema":
        return ()
    patterns = dict.fromkeys(_patterns(json.loads(constraint.text)))
    texts = dict.fromkeys(text for pattern in list(patterns)[:_MOST] for text in _samples(pattern))
    return tuple(json.dumps(text, ensure_ascii=False)[1:-1] for text in texts)


def _patterns(schema: Any) -> Iterator[str]:
    """Yield the patterns of texts and of names anywhere in a schema."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if isinstance(value.get("pattern"), str):
                yield value["pattern"]
            if isinstance(value.get("patternProperties"), dict):
                yield from value["patternProperties"]
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def sample(pattern: str) -> str | None:
    """Return a short text that the pattern may match; None if it is unreadable, or either is too long."""
    return min(_samples(pattern, empty=True), key=len, default=None)


def _samples(pattern: str, *, empty: bool = False) -> list[str]:
    """Return a short text for each alternative of a pattern; a string that has begun may fit only one."""
    if len(pattern) > _LONGEST_PATTERN:
        return []
    try:
        parts = parser.parse(pattern)
        branches = parts[0][1][1] if len(parts) == 1 and parts[0][0] is ops.BRANCH else [parts]
        texts = [_text(branch) for branch in branches[:_MOST]]
    except (re.error, OverflowError, RecursionError, LookupError):
        return []
    return [text for text in texts if text is not None and len(text) <= _LONGEST and (text or empty)]


def _text(parts: Any) -> str | None:
    texts = [_part(kind, value) for kind, value in parts]
    return None if None in texts else "".join(filter(None, texts))


def _part(kind: Any, value: Any) -> str | None:
    """Return a text for one node of a parsed pattern; None for an unsupported node."""
    if kind is ops.LITERAL:
        return chr(value)
    if kind is ops.ANY:
        return "a"
    if kind in (ops.IN, ops.NOT_LITERAL):
        items = value if kind is ops.IN else [(ops.NEGATE, None), (ops.LITERAL, value)]
        is_negated, spans = items[0][0] is ops.NEGATE, list(_spans(items))
        signs = [*(first for first, _ in spans), *_TRIED_SIGNS]
        fits = (any(first <= sign <= last for first, last in spans) != is_negated for sign in signs)
        return next(compress(signs, fits), None)
    if kind is ops.BRANCH:
        texts = [text for text in map(_text, value[1]) if text is not None]
        return min(texts, key=len, default=None)
    if kind is ops.SUBPATTERN:
        return _text(value[-1])
    if kind in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
        least, _, inner = value
        text = _text(inner) if least else ""
        return None if text is None or len(text) * least > _LONGEST else text * least
    return "" if kind is ops.AT else None


def _spans(items: Any) -> Iterator[tuple[str, str]]:
    """Yield the first and the last character of each part of a set; a category has one character."""
    for kind, value in items:
        if kind is ops.LITERAL:
            yield chr(value), chr(value)
        elif kind is ops.RANGE:
            yield chr(value[0]), chr(value[1])
        elif kind is ops.CATEGORY and value in _OF_CATEGORY:
            yield _OF_CATEGORY[value], _OF_CATEGORY[value]


# Limits of CPU time; ordinary grammars use a tenth of them for all counted calls.
_LEAST_SECONDS = 1.0
_CALLS_PER_SECOND = 12_000
_PER_CLOCK = 16  # matcher calls between two readings of the clock


class SearchBudget:
    """A budget of `calls` of a matcher.

    Calls are counted rather than timed, so that the text does not depend on the machine. The clock only stops
    grammars in which a single call is slow.
    """

    def __init__(self, calls: int) -> None:
        self._left, self._begin = calls, time.thread_time()
        self._seconds = max(_LEAST_SECONDS, calls / _CALLS_PER_SECOND)

    @property
    def is_spent(self) -> bool:
        return self._left <= 0

    def half(self) -> SearchBudget:
        """Take half of the calls that are left for a search that is followed by another one."""
        taken = self._left // 2
        self._left -= taken
        return SearchBudget(taken)

    def spend(self, calls: int = 1) -> bool:
        """Count `calls` before they are made; return False if the budget is used up."""
        if self._left <= 0:
            return False
        before, self._left = self._left, self._left - calls
        is_due = before // _PER_CLOCK != self._left // _PER_CLOCK
        if is_due and time.thread_time() - self._begin > self._seconds:
            self._left = 0
        return self._left > 0

    def each(self, tokens: Iterable[int]) -> Iterator[int]:
        """Yield the tokens, one call of the budget for each, until it is used up."""
        return (token for token in tokens if self.spend())
