"""Strings and classes of GBNF and of xgrammar's EBNF."""

from __future__ import annotations

from typing import Literal, Protocol

from gencli.errors import ConfigError
from gencli.structured.regex.tree import Chars, Node, drop_surrogates, invert_ranges, join_ranges, literal

__all__ = ["Letters", "read_class", "read_string"]

_SHARED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_XGRAMMAR = {"b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "e": "\x1b", "/": "/", "'": "'", "?": "?"}
_IN_CLASS = "^$.*+(){}|"
_DIGITS = {"u": 4, "U": 8}
_HEX = "0123456789abcdefABCDEF"


class Letters(Protocol):
    """The attributes of a grammar reader that the functions of this module use."""

    text: str
    at: int
    hex_digits: int
    ambiguous_hex: bool

    def fail(self, what: str, offset: int | None = None, hint: str = "") -> ConfigError: ...

    def note(self, dialect: Literal["gbnf", "xgrammar"], what: str, offset: int) -> None: ...


def read_string(reader: Letters) -> Node:
    """Read a string in double quotes."""
    start, found = reader.at, ""
    reader.at += 1
    while not reader.text.startswith('"', reader.at):
        if reader.at >= len(reader.text) or reader.text[reader.at] in "\r\n":
            raise reader.fail("The string is not closed", start, r"A line break is written \n.")
        found += chr(_letter(reader, in_class=False))
    reader.at += 1
    return literal(found)


def read_class(reader: Letters) -> Node:
    """Read a class in brackets."""
    start = reader.at
    negated = reader.text.startswith("[^", start)
    reader.at += 2 if negated else 1
    ranges: list[tuple[int, int]] = []
    while not reader.text.startswith("]", reader.at):
        if reader.at >= len(reader.text) or reader.text[reader.at] in "\r\n":
            raise reader.fail("The class is not closed", start, r"A line break is written \n.")
        ranges.append(_range(reader))
    reader.at += 1
    if negated and not ranges:
        reader.note("xgrammar", "[^]", start)
    joined = join_ranges(ranges)
    chars = drop_surrogates(invert_ranges(joined) if negated else joined)
    if not chars:
        raise reader.fail("No character matches this class", start)
    return Chars(chars)


def _range(reader: Letters) -> tuple[int, int]:
    start = reader.at
    low = _letter(reader, in_class=True)
    is_range = reader.text.startswith("-", reader.at) and not reader.text.startswith("-]", reader.at)
    if not is_range:
        return low, low
    reader.at += 1
    high = _letter(reader, in_class=True)
    if low > high:
        raise reader.fail(f"The range {reader.text[start : reader.at]} is backwards", start)
    return low, high


def _letter(reader: Letters, *, in_class: bool) -> int:
    start, letter = reader.at, reader.text[reader.at : reader.at + 1]
    reader.at += 1
    if not letter:
        raise reader.fail("The class is not closed", start)
    if letter != "\\":
        if "\ud800" <= letter <= "\udfff":
            raise reader.fail("The grammar is not valid UTF-8", start)
        return ord(letter)
    name = reader.text[reader.at : reader.at + 1]
    reader.at += 1
    if name in _DIGITS or name == "x":
        return _hex(reader, name, start)
    if name and name in _SHARED:
        return ord(_SHARED[name])
    if in_class and name and name in "dDwWsS":
        raise reader.fail(f"The shorthand \\{name} is not known in grammars", start, "Write out its range.")
    if name and name in _XGRAMMAR:
        reader.note("xgrammar", f"the escape \\{name}", start)
        return ord(_XGRAMMAR[name])
    if in_class and name == "-":
        return ord(name)
    if in_class and name and name in _IN_CLASS:
        reader.note("xgrammar", f"the escape \\{name}", start)
        return ord(name)
    raise reader.fail(f"The escape \\{name} is not known", start)


def _hex(reader: Letters, name: str, start: int) -> int:
    most = _DIGITS.get(name, reader.hex_digits)
    end = reader.at
    while end < reader.at + most and reader.text[end : end + 1] and reader.text[end] in _HEX:
        end += 1
    digits = reader.text[reader.at : end]
    if len(digits) < _DIGITS.get(name, 2):
        raise reader.fail(f"The escape \\{name}{digits} has too few hexadecimal digits", start)
    if name == "x" and reader.text[end : end + 1] and reader.text[end] in _HEX:
        reader.ambiguous_hex = True
    point = int(digits, 16)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise reader.fail(f"The escape \\{name}{digits} is no character", start)
    reader.at = end
    return point
