"""ECMA-262 patterns run by the `regex` package, whose searches can be timed.

Python's `re` cannot be interrupted, and differs from ECMA-262: `$` matches before a last line break, \\d and
\\w match letters of every script, `.` matches a carriage return. So each token of a pattern is translated.
Constructs outside ECMA-262 are rejected, except (?i) and (?P<name>...).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from gencli.structured.regex.ecma_lexer import SHORTHANDS, WHITE_SPACE, class_members, code_of, tokens
from gencli.structured.regex.printer import range_text
from gencli.structured.regex.tree import Ranges, invert_ranges

__all__ = [
    "MAX_CHARACTERS",
    "MAX_NESTING",
    "MAX_REPEATS",
    "MAX_SEARCHES",
    "MAX_SECONDS",
    "check_pattern",
    "searches",
]

MAX_CHARACTERS = 20_000  # characters of a pattern; a longer one takes seconds to compile
MAX_NESTING = 100  # nesting of groups; the compiler needs some stack frames for each
MAX_REPEATS = 100_000  # counted repeats, nested ones multiplied; each takes memory
MAX_SEARCHES = 10_000  # searches of patterns in property names, before a run
MAX_SECONDS = 0.1  # seconds for one search

_SETS = {**SHORTHANDS, "s": WHITE_SPACE}
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))


def searches(pattern: str, text: str, seconds: float) -> bool:
    """Whether `pattern` matches anywhere in `text`. TimeoutError when that takes longer than `seconds`."""
    return _compiled(pattern).search(text, timeout=seconds) is not None


def check_pattern(pattern: str) -> None:
    """Raise ValueError, with the reason, unless `pattern` is a regular expression."""
    _compiled(pattern)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Any:
    import regex  # type: ignore[import-untyped]

    if len(pattern) > MAX_CHARACTERS:
        raise ValueError(f"it has {len(pattern)} characters, but the limit is {MAX_CHARACTERS}")
    text = _translated(pattern)
    try:
        return regex.compile(text, regex.VERSION0)
    except regex.error as error:
        raise ValueError(f"{error.msg} (as {text})" if len(text) < 200 else error.msg) from None
    except RecursionError:
        raise ValueError("its groups are nested too deep") from None


def _translated(pattern: str) -> str:
    texts: list[str] = []
    weights = [1]  # by open group: the largest number of repeats in it
    last = 1  # repeats of the part before a quantifier; 0 after a quantifier
    for token in tokens(pattern):
        if token["repeat"]:
            last = _repeated(token, last, weights)
            texts.append(token[0])
            continue
        if token["open"]:
            weights.append(1)
            if len(weights) > MAX_NESTING:
                raise ValueError(f"its groups are nested too deep, more than {MAX_NESTING}")
        elif token["close"] and len(weights) > 1:
            last = weights.pop()
            weights[-1] = max(weights[-1], last)
        if not token["close"]:
            last = 1
        texts.append(_token(token))
    return "".join(texts)


def _repeated(token: re.Match[str], last: int, weights: list[int]) -> int:
    """Return the repeats of a part that repeats `last` times itself; ValueError if there are too many."""
    if not last:
        raise ValueError(f"there is nothing to repeat at character {token.start() + 1}")
    counts = [int(token[name]) for name in ("least", "most") if token[name]]
    weights[-1] = max(weights[-1], last * max([1, *counts]))
    if weights[-1] > MAX_REPEATS:
        raise ValueError(f"its counts make more than {MAX_REPEATS} repeats")
    return 0


def _token(token: re.Match[str]) -> str:
    if token["class"]:
        return _class(token["class"])
    if token["escape"]:
        return _escape(token["escape"])
    match token[0]:
        case "^":
            return r"\A"
        case "$":
            return r"\Z"
        case ".":
            return f"[{range_text(invert_ranges(_LINE_ENDS), _char)}]"
        case "{" | "}" | "]":
            return "\\" + token[0]
    return token[0]


def _escape(escape: str) -> str:
    if escape.isdigit() and escape != "0":
        return f"(?({escape})\\{escape}|)"  # a group without a match is empty
    if escape.startswith("k<"):
        return f"(?({escape[2:-1]})(?P={escape[2:-1]})|)"
    word = f"[{_set('w')}]"
    if escape == "b":
        return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
    if escape == "B":
        return f"(?:(?<={word})(?={word})|(?<!{word})(?!{word}))"
    if escape.lower() in _SETS:
        return f"[{_set(escape)}]"
    return f"\\{escape}" if escape[0] in "pP" and len(escape) > 1 else _char(code_of(escape))


def _class(text: str) -> str:
    is_negated = text.startswith("[^")
    inside = text[2 if is_negated else 1 : -1]
    if not inside:
        return "(?s:.)" if is_negated else "(?!)"
    members = class_members(inside, 0)
    texts = (range_text((member.span,), _char) if member.span else _set(member.name) for member in members)
    return f"[{'^' if is_negated else ''}{''.join(texts)}]"


def _set(name: str) -> str:
    """Return the inside of a class for a shorthand or a property."""
    if name.lower() not in _SETS:
        return f"\\{name}"
    ranges = _SETS[name.lower()]
    return range_text(invert_ranges(ranges) if name.isupper() else ranges, _char)


def _char(code: int) -> str:
    return chr(code) if code < 0x80 and chr(code).isalnum() else f"\\U{code:08x}"
