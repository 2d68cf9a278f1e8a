"""The parts of regular expressions and grammars, whatever notation they were read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = [
    "ANY",
    "EMPTY",
    "LAST",
    "Chars",
    "Choice",
    "Node",
    "Ref",
    "Repeat",
    "Sequence",
    "Verbatim",
    "below",
    "code_point",
    "complement",
    "has_letters",
    "letters",
    "place",
    "unite",
]

_Range = tuple[int, int]
LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of ranges of code points, both ends included. No text has surrogates."""

    ranges: tuple[_Range, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; without items, the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """At least `least` times, at most `most` times (None: no limit)."""

    item: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Ref:
    """A rule by its name; `offset` is where the grammar's text names it."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Something that only the back end understands, as it was written."""

    text: str


Node = Chars | Sequence | Choice | Repeat | Ref | Verbatim
EMPTY = Sequence(())


def below(node: Node) -> tuple[Node, ...]:
    """The parts of a node."""
    if isinstance(node, Sequence | Choice):
        return node.items
    return (node.item,) if isinstance(node, Repeat) else ()


def has_letters(node: Node, known: Callable[[str], bool]) -> bool:
    """Whether some text of it is not empty, given the rules for which that is so."""
    if isinstance(node, Ref):
        return known(node.name)
    if isinstance(node, Repeat) and node.most == 0:
        return False
    return isinstance(node, Chars | Verbatim) or any(has_letters(part, known) for part in below(node))


def unite(ranges: Iterable[_Range]) -> tuple[_Range, ...]:
    """The same code points in ascending ranges that do not touch, without surrogates."""
    pieces = []
    for low, high in ranges:
        pieces += [(low, min(high, _SURROGATES[0] - 1)), (max(low, _SURROGATES[1] + 1), high)]
    united: list[_Range] = []
    for low, high in sorted(piece for piece in pieces if piece[0] <= piece[1]):
        if united and low <= united[-1][1] + 1:
            united[-1] = (united[-1][0], max(high, united[-1][1]))
        else:
            united.append((low, high))
    return tuple(united)


def complement(ranges: Iterable[_Range]) -> tuple[_Range, ...]:
    """All other code points."""
    gaps, start = [], 0
    for low, high in unite(ranges):
        gaps.append((start, low - 1))
        start = high + 1
    return unite([*gaps, (start, LAST)])


ANY = Chars(unite([(0, LAST)]))


def letters(text: str) -> Sequence:
    """A text, character by character."""
    return Sequence(tuple(Chars(((ord(letter), ord(letter)),)) for letter in text))


def code_point(point: int) -> str:
    """A character as both back ends read it in classes, strings and expressions."""
    if point < 128 and chr(point).isalnum():
        return chr(point)
    return f"\\u{point:04X}" if point <= 0xFFFF else f"\\U{point:08X}"


def place(text: str, offset: int) -> str:
    """Where an offset is, for messages: line and column, counted from 1."""
    line = text.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - text.rfind(chr(10), 0, offset)}"
