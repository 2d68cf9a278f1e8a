"""Patterns as automata: the texts that some match and others do not, as one pattern again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from gencli.structured.rewrite.anchors import show
from gencli.structured.rewrite.node import GiveUp
from gencli.structured.rewrite.regex import TOP, Alt, Chars, Node, Repeat, Seq, joined

__all__ = ["between", "literal"]

_Ranges = tuple[tuple[int, int], ...]
_State = tuple[frozenset[Node], ...]  # of each tree, what may follow the text so far

_STATES = 200
_LENGTH = 4_000  # characters of the pattern that comes out
_EMPTY = Seq(())
_EXPLICIT = re.compile(r"(?:\\x[0-9a-f]{2}|[^\\])(?:-(?:\\x[0-9a-f]{2}|[^\\]))?")


def between(wanted: Sequence[Node], refused: Sequence[Node]) -> str | None:
    """A pattern of the texts that match all of `wanted` and none of `refused` as a whole; None if none do.

    The trees have no anchors and no lookarounds. GiveUp if the result becomes too large.
    """
    for tree in refused:
        _check_sure(tree)
    trees = (*wanted, *refused)
    states: dict[_State, int] = {tuple(frozenset([tree]) for tree in trees): 0}
    edges: dict[tuple[int, int], Node] = {}
    ends: list[int] = []
    for state in (queue := list(states)):
        here = states[state]
        accepts = [any(map(_is_nullable, nodes)) for nodes in state]
        if all(accepts[: len(wanted)]) and not any(accepts[len(wanted) :]):
            ends.append(here)
        for target, ranges in _steps(state, len(wanted)).items():
            if target not in states:
                states[target] = len(states)
                queue.append(target)
                if len(states) > _STATES:
                    raise GiveUp("a combination of patterns that is too large")
            edges[here, states[target]] = _chars(ranges)
    found = _pattern(edges, len(states), ends)
    if found is None:
        return None
    text = f"^(?:{show(found)})$"
    if len(text) > _LENGTH:
        raise GiveUp("a combination of patterns that is too large")
    return text


def literal(text: str) -> Node:
    """The tree of one text."""
    return Seq(tuple(Chars(((ord(sign), ord(sign)),)) for sign in text))


def _check_sure(node: Node) -> None:
    """GiveUp for a class of which a tree has fewer characters than some reading: its complement has more."""
    if isinstance(node, Chars) and (node.but or {(9, 13), (32, 32)} <= set(node.ranges)):
        raise GiveUp("the complement of a class that not all read alike")
    if isinstance(node, Repeat):
        _check_sure(node.body)
    for item in getattr(node, "items", ()):
        _check_sure(item)


def _steps(state: _State, num_wanted: int) -> dict[_State, _Ranges]:
    """The states that one more character leads to, but for those in which a wanted tree matches no more."""
    forms = [[one for node in nodes for one in _linear(node)] for nodes in state]
    bounds = sorted({edge for form in forms for (low, high), _ in form for edge in (low, high + 1)})
    found: dict[_State, list[tuple[int, int]]] = {}
    for low, after in pairwise(bounds):
        target = tuple(frozenset(rest for (a, b), rest in form if a <= low <= b) for form in forms)
        if all(target[:num_wanted]):
            found.setdefault(target, []).append((low, after - 1))
    return {target: joined(ranges) for target, ranges in found.items()}


@lru_cache(maxsize=4096)
def _linear(node: Node) -> tuple[tuple[tuple[int, int], Node], ...]:
    """(range of first characters, what follows): Antimirov's partial derivatives."""
    return tuple(_first(node))


def _first(node: Node) -> Iterator[tuple[tuple[int, int], Node]]:
    if isinstance(node, Chars):
        yield from ((one, _EMPTY) for one in _ranges(node))
    elif isinstance(node, Alt):
        for item in node.items:
            yield from _linear(item)
    elif isinstance(node, Repeat):
        if node.most != 0:
            more = Repeat(node.body, max(0, node.least - 1), None if node.most is None else node.most - 1)
            yield from ((one, _seq(rest, more)) for one, rest in _linear(node.body))
    elif isinstance(node, Seq):
        for index, item in enumerate(node.items):
            after = Seq(node.items[index + 1 :])
            yield from ((one, _seq(rest, after)) for one, rest in _linear(item))
            if not _is_nullable(item):
                break
    else:
        raise GiveUp("an anchor or a lookaround in the middle")


def _seq(*nodes: Node) -> Node:
    items = [part for node in nodes for part in (node.items if isinstance(node, Seq) else (node,))]
    items = [item for item in items if not (isinstance(item, Repeat) and item.most == 0)]
    return items[0] if len(items) == 1 else Seq(tuple(items))


def _is_nullable(node: Node) -> bool:
    if isinstance(node, Seq):
        return all(map(_is_nullable, node.items))
    if isinstance(node, Alt):
        return any(map(_is_nullable, node.items))
    return isinstance(node, Repeat) and (node.least == 0 or _is_nullable(node.body))


def _ranges(node: Chars) -> _Ranges:
    if not node.negated:
        return node.ranges
    if _EXPLICIT.sub("", node.but):
        raise GiveUp("a class that not all read alike")
    more = [_range(part[0]) for part in _EXPLICIT.finditer(node.but)]
    return _others(joined([*node.ranges, *more]))


def _range(text: str) -> tuple[int, int]:
    codes = [int(one[2:], 16) if one[0] == "\\" else ord(one) for one in re.findall(r"\\x..|[^-]", text)]
    return codes[0], codes[-1]


def _others(ranges: _Ranges) -> _Ranges:
    edges = [-1, *(edge for pair in ranges for edge in pair), TOP + 1]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple((low + 1, high - 1) for low, high in pairs if low + 1 <= high - 1)


def _chars(ranges: _Ranges) -> Chars:
    is_open = ranges[-1][1] == TOP and ranges != ((0, TOP),)
    return Chars(_others(ranges), negated=True) if is_open else Chars(ranges)


def _pattern(edges: dict[tuple[int, int], Node], count: int, ends: Iterable[int]) -> Node | None:
    """The tree of an automaton that begins at 0, by removing its states one after the other."""
    start, end = count, count + 1
    edges = {**edges, (start, 0): _EMPTY, **{(one, end): _EMPTY for one in ends}}
    left = set(range(count))
    while left:
        into = {one: [a for a, b in edges if b == one and a != one] for one in left}
        out = {one: [b for a, b in edges if a == one and b != one] for one in left}
        gone = min(left, key=lambda one: (len(into[one]) * len(out[one]), one))
        left.remove(gone)
        loop = edges.get((gone, gone))
        again = [Repeat(loop, 0, None)] if loop is not None else []
        for a in into[gone]:
            for b in out[gone]:
                way = _seq(edges[a, gone], *again, edges[gone, b])
                edges[a, b] = _either(edges[a, b], way) if (a, b) in edges else way
                if len(show(edges[a, b])) > _LENGTH:
                    raise GiveUp("a combination of patterns that is too large")
        edges = {pair: node for pair, node in edges.items() if gone not in pair}
    return edges.get((start, end))


def _either(a: Node, b: Node) -> Node:
    items = [part for node in (a, b) for part in (node.items if isinstance(node, Alt) else (node,))]
    return Alt(tuple(dict.fromkeys(items)))
