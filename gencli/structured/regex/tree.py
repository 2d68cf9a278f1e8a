"""The nodes of regular expressions and grammars, for all notations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

__all__ = [
    "EMPTY",
    "MOST_REPEATS",
    "QUANTIFIERS",
    "TOP",
    "Alt",
    "Anchor",
    "Chars",
    "Look",
    "Node",
    "Ranges",
    "Ref",
    "RegexError",
    "Repeat",
    "Seq",
    "Verbatim",
    "alt",
    "bounds_fault",
    "chars",
    "drop_surrogates",
    "has_letters",
    "invert_ranges",
    "join_ranges",
    "literal",
    "parts",
    "seq",
    "single",
    "walk",
    "within",
]

Ranges = tuple[tuple[int, int], ...]  # ranges of code points, both ends inclusive

TOP = 0x10FFFF
MOST_REPEATS = 100_000  # limit of a counted repeat in a regex or grammar for outputs
QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_SURROGATES = (0xD800, 0xDFFF)


class RegexError(ValueError):
    """A pattern that is invalid, or outside the reader's dialect."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of `ranges`; with `negated` any character outside them."""

    ranges: Ranges
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Seq:
    """A concatenation of the items; the empty text without items."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """An alternation of the items."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repetition: at least `least` times, at most `most` times (None: no limit)."""

    body: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    """An anchor as written, such as ^; `offset` is its position in the pattern."""

    kind: str
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Look:
    """A lookaround; `kind` is the text that opens it, such as ?=; `text` is all of it as written."""

    kind: str
    body: Node
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Ref:
    """A rule of a grammar by its name; `offset` is the position of the name in the grammar."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Text that only the back end interprets."""

    text: str


Node = Chars | Seq | Alt | Repeat | Anchor | Look | Ref | Verbatim
EMPTY = Seq(())


def single(code: int) -> Chars:
    """Return the node of one code point."""
    return Chars(((code, code),))


def chars(ranges: Iterable[tuple[int, int]]) -> Chars:
    """Return the node of some code points; written as the complement if they have the last one.

    Surrogates, which no text has, are added or left out as it is shorter to write.
    """
    joined = join_ranges(ranges)
    if not joined or joined[-1][1] < TOP:
        return Chars(drop_surrogates(joined))
    joined = join_ranges([*joined, _SURROGATES])
    return Chars(joined) if joined == ((0, TOP),) else Chars(invert_ranges(joined), True)


def within(node: Node, ranges: Ranges) -> Node:
    """Return the tree for texts that have only characters of `ranges`."""
    if isinstance(node, Chars):
        own, gone = node.ranges, invert_ranges(ranges)
        return chars(invert_ranges(join_ranges([*(own if node.negated else invert_ranges(own)), *gone])))
    if isinstance(node, Seq | Alt):
        return type(node)(tuple(within(item, ranges) for item in node.items))
    if isinstance(node, Repeat):
        return Repeat(within(node.body, ranges), node.least, node.most)
    return Look(node.kind, within(node.body, ranges), node.text) if isinstance(node, Look) else node


def literal(text: str) -> Seq:
    """Return the node of a text."""
    return Seq(tuple(single(ord(char)) for char in text))


def seq(items: Sequence[Node]) -> Node:
    """Return the concatenation of items; a single item is returned unchanged."""
    return items[0] if len(items) == 1 else Seq(tuple(items))


def alt(items: Sequence[Node]) -> Node:
    """Return the alternation of items; a single item is returned unchanged."""
    return items[0] if len(items) == 1 else Alt(tuple(items))


def bounds_fault(count: str, least: int, most: int | None) -> str:
    """Return the reason why the bounds of a counted repeat are invalid; "" if they are valid."""
    if max(least, most or 0) > MOST_REPEATS:
        return f"{count} repeats more than {MOST_REPEATS} times"
    return f"{count} has a minimum above its maximum" if most is not None and least > most else ""


def parts(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below a node."""
    if isinstance(node, Seq | Alt):
        return node.items
    return (node.body,) if isinstance(node, Repeat | Look) else ()


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all nodes below it, from left to right."""
    stack = [node]
    while stack:
        yield (here := stack.pop())
        stack.extend(reversed(parts(here)))


def has_letters(node: Node, known: Callable[[str], bool] = lambda name: False) -> bool:
    """Whether a node matches a non-empty text; `known` returns this for a rule by name."""
    if isinstance(node, Ref):
        return known(node.name)
    if isinstance(node, Repeat) and node.most == 0:
        return False
    return isinstance(node, Chars | Verbatim) or any(has_letters(part, known) for part in parts(node))


def join_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the same code points in ascending ranges that neither overlap nor touch."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def invert_ranges(ranges: Ranges) -> Ranges:
    """Return all other code points; `ranges` in the form that `join_ranges` returns."""
    starts = [0, *(high + 1 for _, high in ranges)]
    ends = [*(low - 1 for low, _ in ranges), TOP]
    return tuple((low, high) for low, high in zip(starts, ends, strict=True) if low <= high)


def drop_surrogates(ranges: Ranges) -> Ranges:
    """Return the same code points without surrogates."""
    first, last = _SURROGATES
    halves = [
        half for low, high in ranges for half in ((low, min(high, first - 1)), (max(low, last + 1), high))
    ]
    return join_ranges(half for half in halves if half[0] <= half[1])
