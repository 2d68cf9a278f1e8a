"""Short sample texts of regular expressions, used as possible ends of strings in a grammar."""

from __future__ import annotations

import json
import re
import re._constants as ops  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from typing import Any

from processors.constraint import Constraint

__all__ = ["sample", "samples_of"]

_MOST = 32  # patterns of one schema
_LONGEST_PATTERN = 4096  # characters of a pattern
_LONGEST = 64  # characters of a sample
_TRIED = "a0A-._ @/:b1"  # characters tried for a negated set
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
    found = [schema]
    while found:
        value = found.pop()
        if isinstance(value, dict):
            if isinstance(value.get("pattern"), str):
                yield value["pattern"]
            if isinstance(value.get("patternProperties"), dict):
                yield from value["patternProperties"]
            found += value.values()
        elif isinstance(value, list):
            found += value


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
        return next((sign for sign in (*_named(items), *_TRIED) if _is_in(sign, items)), None)
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


def _named(items: Any) -> Iterator[str]:
    """Yield the characters listed in a set."""
    for kind, value in items:
        if kind is ops.LITERAL:
            yield chr(value)
        elif kind is ops.RANGE:
            yield chr(value[0])
        elif kind is ops.CATEGORY and value in _OF_CATEGORY:
            yield _OF_CATEGORY[value]


def _is_in(sign: str, items: Any) -> bool:
    is_negated = items[0][0] is ops.NEGATE
    return any(_has(kind, value, sign) for kind, value in items) != is_negated


def _has(kind: Any, value: Any, sign: str) -> bool:
    if kind is ops.LITERAL:
        return bool(ord(sign) == value)
    if kind is ops.RANGE:
        return bool(value[0] <= ord(sign) <= value[1])
    return kind is ops.CATEGORY and _OF_CATEGORY.get(value) == sign
