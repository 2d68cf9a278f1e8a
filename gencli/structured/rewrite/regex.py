"""Patterns of JSON Schema, read into a tree: the regular part of ECMA 262, and lookarounds.

Where ECMA 262, Python and Rust read a class differently, the tree has the characters that all agree on:
a mask made from it never allows what one of them refuses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Never

__all__ = [
    "TOP",
    "Alt",
    "Anchor",
    "Chars",
    "Look",
    "Node",
    "RegexError",
    "Repeat",
    "Seq",
    "joined",
    "parse_regex",
]

_Ranges = tuple[tuple[int, int], ...]

TOP = 0x10FFFF
_SHORT: dict[str, tuple[_Ranges, str]] = {
    "d": (((48, 57),), r"\p{Nd}"),
    "w": (((48, 57), (65, 90), (95, 95), (97, 122)), r"\p{L}\p{N}"),
    "s": (((9, 13), (32, 32)), "\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"),
}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
_LOOKS = ("?=", "?!", "?<=", "?<!")
_BOUNDS = re.compile(r"\{([0-9]{1,6})(,)?([0-9]{1,6})?\}")
_NAME = re.compile(r"\?P?<[A-Za-z_$][\w$]*>")
_HEX = {"x": re.compile("([0-9A-Fa-f]{2})"), "u": re.compile("([0-9A-Fa-f]{4})")}
_BRACED = re.compile(r"\{([0-9A-Fa-f]{1,6})\}")
_PROPERTY = re.compile(r"\\p\{(?:L|N|Nd)\}")
_LOW = re.compile(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})")
_LINE_ENDS: _Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))


class RegexError(ValueError):
    """A pattern that is wrong, or not regular: back references, word boundaries, properties, flags."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character: of these ranges, or with `negated` of none of them, nor of the classes in `but`."""

    ranges: _Ranges
    negated: bool = False
    but: str = ""


@dataclass(frozen=True, slots=True)
class Anchor:
    """^ or $."""

    kind: str


@dataclass(frozen=True, slots=True)
class Look:
    """A lookaround; `kind` is the text that opens it."""

    kind: str
    body: Node


@dataclass(frozen=True, slots=True)
class Seq:
    """One after another."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of several."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """At least `least` times, at most `most` (None: no limit)."""

    body: Node
    least: int
    most: int | None


Node = Chars | Anchor | Look | Seq | Alt | Repeat


def parse_regex(text: str) -> Node:
    """The tree of a pattern. RegexError if it is wrong or not regular."""
    reader = _Reader(text)
    node = reader.alternatives(0)
    if reader.at < len(text):
        reader.fail("a ) that nothing opens")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, what: str) -> Never:
        raise RegexError(f"{self.text!r} at {self.at}: {what}")

    def take(self, wanted: str) -> bool:
        if found := self.text.startswith(wanted, self.at):
            self.at += len(wanted)
        return found

    def next(self) -> str:
        if self.at >= len(self.text):
            self.fail("the pattern ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def alternatives(self, depth: int) -> Node:
        if depth > 50:
            self.fail("more than 50 groups in each other")
        found = [self.sequence(depth)]
        while self.take("|"):
            found.append(self.sequence(depth))
        return found[0] if len(found) == 1 else Alt(tuple(found))

    def sequence(self, depth: int) -> Node:
        found: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            found.append(self.repeated(self.atom(depth)))
        return found[0] if len(found) == 1 else Seq(tuple(found))

    def repeated(self, node: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        if isinstance(node, Anchor | Look):
            self.fail("a quantifier that quantifies no character")
        self.take("?")  # lazy or not, the language is the same
        if self._bounds() is not None:
            self.fail("a quantifier that quantifies nothing")
        return Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return bounds
        found = _BOUNDS.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        least, comma, most = found.groups()
        return int(least), int(most) if most else None if comma else int(least)

    def atom(self, depth: int) -> Node:
        sign = self.next()
        if sign == "(":
            return self._group(depth)
        if sign == "[":
            return self._class()
        if sign == ".":
            return Chars(_LINE_ENDS, True)
        if sign in "^$":
            return Anchor(sign)
        if sign in "*+?":
            self.fail("a quantifier that quantifies nothing")
        if sign != "\\":
            return _single(ord(sign))
        found = self._escape()
        return found if isinstance(found, Chars) else _single(found)

    def _group(self, depth: int) -> Node:
        kind = next((look for look in reversed(_LOOKS) if self.take(look)), "")
        if not kind and not self.take("?:"):
            name = _NAME.match(self.text, self.at)
            self.at = name.end() if name else self.at
            if self.text.startswith("?", self.at):
                self.fail("a group of a kind that is no part of ECMA 262, or flags")
        body = self.alternatives(depth + 1)
        if not self.take(")"):
            self.fail("a ( that is not closed")
        return Look(kind, body) if kind else body

    def _escape(self) -> Chars | int:
        """A set of characters, or the code of one."""
        sign = self.next()
        if sign.lower() in _SHORT:
            ranges, but = _SHORT[sign.lower()]
            return Chars(ranges, True, but) if sign.isupper() else Chars(ranges)
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign in "xu":
            return self._code(sign)
        if sign.isalnum():
            self.fail(f"\\{sign} is not regular, or not known")
        return ord(sign)

    def _code(self, sign: str) -> int:
        found = (_BRACED if sign == "u" and self.text.startswith("{", self.at) else _HEX[sign]).match(
            self.text, self.at
        )
        if found is None or int(found[1], 16) > TOP:
            self.fail(f"\\{sign} without its digits")
        self.at = found.end()
        code = int(found[1], 16)
        if 0xD800 <= code < 0xDC00 and (low := _LOW.match(self.text, self.at)):
            self.at = low.end()
            return 0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00
        return code

    def _class(self) -> Chars:
        negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        but = ""
        while not self.take("]"):
            if negated and (name := _PROPERTY.match(self.text, self.at)):
                self.at = name.end()
                but += name[0]
                continue
            low = self._member()
            if isinstance(low, Chars):
                if low.negated and len(everything := self._everything(low)) == 1:
                    ranges.extend(everything)
                elif low.negated:
                    self.fail("a class with a complement in it")
                else:
                    ranges.extend(low.ranges)
                    but += next(but for ranges_, but in _SHORT.values() if ranges_ == low.ranges)
            elif self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                high = self._member()
                if isinstance(high, Chars) or high < low:
                    self.fail("a range that goes down, or ends in a class")
                ranges.append((low, high))
            else:
                ranges.append((low, low))
        return Chars(joined(ranges), negated, but if negated else "")

    def _member(self) -> Chars | int:
        sign = self.next()
        if sign != "\\":
            return ord(sign)
        if self.take("b"):
            return 8
        return self._escape()

    def _everything(self, half: Chars) -> _Ranges:
        """All characters, where the class holds both \\s and \\S, say; else nothing."""
        sign = next(sign for sign, (ranges, _) in _SHORT.items() if ranges == half.ranges)
        around = self.text[max(0, self.at - 4) : self.at + 2]
        return (
            ((0, TOP),)
            if f"\\{sign}\\{sign.upper()}" in around or f"\\{sign.upper()}\\{sign}" in around
            else ()
        )


def _single(code: int) -> Chars:
    return Chars(((code, code),))


def joined(ranges: list[tuple[int, int]]) -> _Ranges:
    """The same characters in order, without overlap."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)
