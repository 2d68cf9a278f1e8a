"""The regular expressions of JSON Schema, which are ECMA-262's, run by `regex`, which can be timed.

Python's `re` cannot be stopped and reads much differently: `$` in front of a last line break, digits and
words of every script, `.` at a carriage return. Each part of a pattern is written anew so that it means
what it means in ECMA-262; what that does not have is refused, but for (?i) and (?P<name>...).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

__all__ = ["MAX_CHARACTERS", "MAX_REPEATS", "MAX_SEARCHES", "MAX_SECONDS", "check_pattern", "searches"]

MAX_CHARACTERS = 20_000  # of a pattern; a longer one takes seconds to compile
MAX_REPEATS = 100_000  # counted repeats, nested ones multiplied; each takes memory
MAX_SEARCHES = 10_000  # of patterns in the names of properties, before a run
MAX_SECONDS = 0.1  # for one of them

_TOP = 0x10FFFF
_SETS = {
    "d": ((0x30, 0x39),),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    "s": (
        *((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
        *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
    ),
    "n": ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)),  # where a dot stops
}
_CHARACTER = r"u\{[0-9a-fA-F]{1,6}\}|u[dD][89abAB]..\\u[dD][c-fC-F]..|u....|x..|c.|[pP]\{[\w=]+\}"
_PART = re.compile(
    r"(?P<class>\[\^?(?:\\.|[^\]\\])*\])"
    rf"|\\(?P<escape>{_CHARACTER}|k<\w+>|[1-9]\d*|.)"
    r"|(?P<repeat>[*+?]|\{(?P<least>\d+),?(?P<most>\d*)\})\??"
    r"|(?P<open>\((?:\?(?::|=|!|<=|<!|P?<\w+>|i:))?)(?!\?)"
    r"|(?P<close>\))"
    r"|\(\?i\)|[^\\\[(]",
    re.DOTALL,
)
_CLASS_PART = re.compile(rf"\\({_CHARACTER}|.)|(.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}
_HYPHEN = ("-", "-")  # one that is not escaped


def searches(pattern: str, text: str, seconds: float) -> bool:
    """Whether `pattern` matches anywhere in `text`. TimeoutError when that takes longer than `seconds`."""
    return _compiled(pattern).search(text, timeout=seconds) is not None


def check_pattern(pattern: str) -> None:
    """Raise ValueError, saying why, unless `pattern` is a regular expression."""
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
    parts: list[str] = []
    weights = [1]  # of the open groups: how often their heaviest part repeats
    last = 1  # the same of the part that a count would repeat; 0 after a count
    at = 0
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None:
            raise ValueError(f"{pattern[at : at + 4]!r} at character {at + 1} is not in ECMA-262")
        at = part.end()
        if part["repeat"]:
            last = _repeated(part, last, weights)
            parts.append(part[0])
            continue
        if part["open"]:
            weights.append(1)
        elif part["close"] and len(weights) > 1:
            last = weights.pop()
            weights[-1] = max(weights[-1], last)
        if not part["close"]:
            last = 1
        parts.append(_part(part))
    return "".join(parts)


def _repeated(part: re.Match[str], last: int, weights: list[int]) -> int:
    """Account for a repeat of a part that repeats `last` times in itself."""
    if not last:
        raise ValueError(f"there is nothing to repeat at character {part.start() + 1}")
    counts = [int(part[name]) for name in ("least", "most") if part[name]]
    weights[-1] = max(weights[-1], last * max([1, *counts]))
    if weights[-1] > MAX_REPEATS:
        raise ValueError(f"its counts make more than {MAX_REPEATS} repeats")
    return 0


def _part(part: re.Match[str]) -> str:
    if part["class"]:
        return _class(part["class"])
    if part["escape"]:
        return _escape(part["escape"])
    match part[0]:
        case "^":
            return r"\A"
        case "$":
            return r"\Z"
        case ".":
            return f"[{_ranges(_SETS['n'], is_negated=True)}]"
        case "{" | "}" | "]":
            return "\\" + part[0]
    return part[0]


def _escape(escape: str) -> str:
    if escape.isdigit() and escape != "0":
        return f"(?({escape})\\{escape}|)"  # a group that has not matched is empty
    if escape.startswith("k<"):
        return f"(?({escape[2:-1]})(?P={escape[2:-1]})|)"
    word, no_word = _set("w"), _set("W")
    if escape == "b":
        return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
    if escape == "B":
        return f"(?:(?<={word})(?={word})|(?<!{word})(?!{word}))"
    if escape.lower() in "dws":
        return {"w": word, "W": no_word}.get(escape) or _set(escape)
    return f"\\{escape}" if escape[0] in "pP" and len(escape) > 1 else _char(_character(escape))


def _set(letter: str) -> str:
    return f"[{_ranges(_SETS[letter.lower()], is_negated=letter.isupper())}]"


def _class(text: str) -> str:
    """A class in brackets. A hyphen makes a range only between two characters."""
    is_negated = text.startswith("[^")
    items = list(_items(text[2 if is_negated else 1 : -1]))
    if not items:
        return "(?s:.)" if is_negated else "(?!)"
    parts, at = [], 0
    while at < len(items):
        if at + 2 < len(items) and items[at + 1] == _HYPHEN and items[at][0] and items[at + 2][0]:
            low, high = items[at][0], items[at + 2][0]
            if low > high:
                raise ValueError(f"the range {low}-{high} is backwards")
            parts.append(f"{_char(low)}-{_char(high)}")
            at += 3
        else:
            char, code = items[at]
            parts.append(_char(char) if char else code)
            at += 1
    return f"[{'^' if is_negated else ''}{''.join(parts)}]"


def _items(text: str) -> Iterator[tuple[str, str]]:
    """(character, "") or ("", the text of a set) of each item of a class."""
    for found in _CLASS_PART.finditer(text):
        escape, char = found[1], found[2]
        if char:
            yield _HYPHEN if char == "-" else (char, "")
        elif escape.lower() in "dws":
            yield "", _ranges(_SETS[escape.lower()], is_negated=escape.isupper())
        elif escape[0] in "pP" and len(escape) > 1:
            yield "", f"\\{escape}"
        else:
            yield "\b" if escape == "b" else _character(escape), ""


def _character(escape: str) -> str:
    """The character that an escape stands for."""
    if escape in _LETTERS:
        return _LETTERS[escape]
    if escape[0] in "xu" and len(escape) > 1:
        try:
            codes = [int(code.strip("xu{}"), 16) for code in escape.split("\\")]
        except ValueError:
            raise ValueError(f"\\{escape} is not in ECMA-262") from None
        if len(codes) == 2:
            codes = [0x10000 + (codes[0] - 0xD800 << 10) + codes[1] - 0xDC00]
        if codes[0] <= _TOP:
            return chr(codes[0])
    elif escape[0] == "c" and len(escape) == 2 and escape[1].isascii() and escape[1].isalpha():
        return chr(ord(escape[1]) % 32)
    elif len(escape) == 1 and not escape.isalnum():
        return escape
    raise ValueError(f"\\{escape} is not in ECMA-262")


def _ranges(ranges: tuple[tuple[int, int], ...], *, is_negated: bool) -> str:
    if is_negated:
        edges = [-1, *(edge for low, high in ranges for edge in (low, high)), _TOP + 1]
        ranges = tuple((edges[n] + 1, edges[n + 1] - 1) for n in range(0, len(edges), 2))
    return "".join(f"{_char(chr(low))}-{_char(chr(high))}" for low, high in ranges if low <= high)


def _char(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\U{ord(char):08x}"
