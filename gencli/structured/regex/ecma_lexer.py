"""Tokens, escapes and classes of ECMA-262 patterns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gencli.structured.regex.tree import TOP, Ranges, RegexError

__all__ = ["SHORTHANDS", "WHITE_SPACE", "Member", "class_members", "code_of", "is_set", "tokens"]

_SPACES: Ranges = ((0x09, 0x0D), (0x20, 0x20))
# The ASCII part of \d, \w and \s, on which ECMA-262, Python, Rust and xgrammar agree.
SHORTHANDS: dict[str, Ranges] = {
    "d": ((0x30, 0x39),),
    "w": ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    "s": _SPACES,
}
WHITE_SPACE: Ranges = (  # \s of ECMA-262
    *(*_SPACES, (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)

_H = "[0-9a-fA-F]"
_CHARACTER = (
    rf"u\{{{_H}{{1,6}}\}}|u[dD][89abAB]{_H}{{2}}\\u[dD][c-fC-F]{_H}{{2}}|u{_H}{{4}}|x{_H}{{2}}"
    r"|c[A-Za-z]|[pP]\{[\w=]+\}"
)
_TOKEN = re.compile(
    r"(?P<class>\[\^?(?:\\.|[^\]\\])*\])"
    rf"|\\(?P<escape>{_CHARACTER}|k<\w+>|[1-9][0-9]*|.)"
    r"|(?P<repeat>(?:[*+?]|\{(?P<least>[0-9]+),?(?P<most>[0-9]*)\})\??)"
    r"|(?P<open>\((?:\?(?::|=|!|<=|<!|P?<\w+>|i:))?)(?!\?)"
    r"|(?P<close>\))"
    r"|(?P<flags>\(\?i\))"
    r"|(?P<char>[^\\[(])",
    re.DOTALL,
)
_MEMBER = re.compile(rf"\\({_CHARACTER}|.)|(.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}


@dataclass(frozen=True, slots=True)
class Member:
    """A part of a class, which ends at `end` in the pattern.

    `span` is its range of code points; None for a set, whose escape is `name`, without the backslash.
    """

    end: int
    span: tuple[int, int] | None
    name: str = ""


def tokens(pattern: str) -> Iterator[re.Match[str]]:
    """Yield the tokens of a pattern as matches; `lastgroup` is the kind. RegexError for any other text."""
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise RegexError(f"{pattern[at : at + 4]!r} at character {at + 1} is not in ECMA-262")
        yield token
        at = token.end()


def class_members(text: str, start: int) -> Iterator[Member]:
    """Yield the members of a class; `start` is the position of its inside `text` in the pattern.

    A hyphen forms a range only between two characters. Before a set, as in [a-\\d], the hyphen is yielded
    with the name "-". Raises RegexError for a reversed range.
    """
    items = [_item(found, start) for found in _MEMBER.finditer(text)]
    at = 0
    while at < len(items):
        low = items[at]
        next_ = items[at + 1 : at + 3]
        if low.span is None or len(next_) < 2 or next_[0].name != "-":
            yield Member(low.end, low.span, "" if low.span else low.name)
            at += 1
        elif (high := next_[1]).span is None:
            yield Member(low.end, low.span)
            yield next_[0]
            at += 2
        else:
            if low.span > high.span:
                raise RegexError(f"the range {chr(low.span[0])}-{chr(high.span[0])} is backwards")
            yield Member(high.end, (low.span[0], high.span[0]))
            at += 3


def _item(found: re.Match[str], start: int) -> Member:
    """Return one character or set; a hyphen without a backslash has the name "-"."""
    escape, char = found[1], found[2]
    end = start + found.end()
    if char:
        return Member(end, (ord(char), ord(char)), "-" * (char == "-"))
    if is_set(escape):
        return Member(end, None, escape)
    code = 8 if escape == "b" else code_of(escape)
    return Member(end, (code, code))


def is_set(escape: str) -> bool:
    """Whether an escape, given without its backslash, is a shorthand or a property."""
    return escape.lower() in SHORTHANDS or (escape[0] in "pP" and len(escape) > 1)


def code_of(escape: str) -> int:
    """Return the code point of an escape, given without its backslash. RegexError if it has none."""
    if escape in _LETTERS:
        return ord(_LETTERS[escape])
    if escape[0] in "xu" and len(escape) > 1:
        codes = [int(code.strip("xu{}"), 16) for code in escape.split("\\")]
        if len(codes) == 2:
            return 0x10000 + ((codes[0] - 0xD800) << 10) + codes[1] - 0xDC00
        if codes[0] <= TOP:
            return codes[0]
    elif escape[0] == "c" and len(escape) == 2:
        return ord(escape[1]) % 32
    elif len(escape) == 1 and not escape.isalnum():
        return ord(escape)
    raise RegexError(f"\\{escape} is not in ECMA-262")
