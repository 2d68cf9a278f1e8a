"""Intersection and difference of patterns by automata; the result is one pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from gencli.structured.errors import GiveUp
from gencli.structured.regex.printer import show
from gencli.structured.regex.tree import (
    EMPTY,
    TOP,
    Alt,
    Chars,
    Node,
    Ranges,
    Repeat,
    Seq,
    invert_ranges,
    join_ranges,
    seq,
    walk,
)

__all__ = ["between"]

_State = tuple[frozenset[Node], ...]  # for each tree, the nodes that may follow the text so far

_STATES = 200
_LENGTH = 4_000  # characters of the resulting pattern
_EXPLICIT = re.compile(r"(?:\\x[0-9a-f]{2}|[^\\])(?:-(?:\\x[0-9a-f]{2}|[^\\]))?")


def between(wanted: Sequence[Node], refused: Sequence[Node]) -> str | None:
    """Return a pattern of the texts that match all `wanted` and no `refused` trees; None if there are none.

    The trees match whole texts and have no anchors or lookarounds. Raises GiveUp if the result is too large.
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


def _check_sure(node: Node) -> None:
    """Raise GiveUp for a tree with fewer characters than in some dialect: its complement would have more."""
    for chars in walk(node):
        if isinstance(chars, Chars) and (chars.but or {(9, 13), (32, 32)} <= set(chars.ranges)):
            raise GiveUp("the complement of a class that not all read alike")


def _steps(state: _State, num_wanted: int) -> dict[_State, Ranges]:
    """Return the states one character ahead in which every wanted tree can still match."""
    forms = [[one for node in nodes for one in _linear(node)] for nodes in state]
    bounds = sorted({edge for form in forms for (low, high), _ in form for edge in (low, high + 1)})
    found: dict[_State, list[tuple[int, int]]] = {}
    for low, after in pairwise(bounds):
        target = tuple(frozenset(rest for (a, b), rest in form if a <= low <= b) for form in forms)
        if all(target[:num_wanted]):
            found.setdefault(target, []).append((low, after - 1))
    return {target: join_ranges(ranges) for target, ranges in found.items()}


@lru_cache(maxsize=4096)
def _linear(node: Node) -> tuple[tuple[tuple[int, int], Node], ...]:
    """Return (range of first characters, remaining node) pairs: Antimirov's partial derivatives."""
    return tuple(_first(node))


def _first(node: Node) -> Iterator[tuple[tuple[int, int], Node]]:
    if isinstance(node, Chars):
        yield from ((one, EMPTY) for one in _ranges(node))
    elif isinstance(node, Alt):
        for item in node.items:
            yield from _linear(item)
    elif isinstance(node, Repeat):
        if node.most != 0:
            more = Repeat(node.body, max(0, node.least - 1), None if node.most is None else node.most - 1)
            yield from ((one, _join(rest, more)) for one, rest in _linear(node.body))
    elif isinstance(node, Seq):
        for index, item in enumerate(node.items):
            after = Seq(node.items[index + 1 :])
            yield from ((one, _join(rest, after)) for one, rest in _linear(item))
            if not _is_nullable(item):
                break
    else:
        raise GiveUp("an anchor or a lookaround in the middle")


def _join(*nodes: Node) -> Node:
    items = [part for node in nodes for part in (node.items if isinstance(node, Seq) else (node,))]
    items = [item for item in items if not (isinstance(item, Repeat) and item.most == 0)]
    return seq(items)


def _is_nullable(node: Node) -> bool:
    if isinstance(node, Seq):
        return all(map(_is_nullable, node.items))
    if isinstance(node, Alt):
        return any(map(_is_nullable, node.items))
    return isinstance(node, Repeat) and (node.least == 0 or _is_nullable(node.body))


def _ranges(node: Chars) -> Ranges:
    if not node.negated:
        return node.ranges
    if _EXPLICIT.sub("", node.but):
        raise GiveUp("a class that not all read alike")
    more = [_range(part[0]) for part in _EXPLICIT.finditer(node.but)]
    return invert_ranges(join_ranges([*node.ranges, *more]))


def _range(text: str) -> tuple[int, int]:
    codes = [int(one[2:], 16) if one[0] == "\\" else ord(one) for one in re.findall(r"\\x..|[^-]", text)]
    return codes[0], codes[-1]


def _chars(ranges: Ranges) -> Chars:
    is_open = ranges[-1][1] == TOP and ranges != ((0, TOP),)
    return Chars(invert_ranges(ranges), negated=True) if is_open else Chars(ranges)


def _pattern(edges: dict[tuple[int, int], Node], count: int, ends: Iterable[int]) -> Node | None:
    """Return the tree of an automaton that starts in state 0, by state elimination."""
    start, end = count, count + 1
    edges = {**edges, (start, 0): EMPTY, **{(one, end): EMPTY for one in ends}}
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
                way = _join(edges[a, gone], *again, edges[gone, b])
                edges[a, b] = _either(edges[a, b], way) if (a, b) in edges else way
                if len(show(edges[a, b])) > _LENGTH:
                    raise GiveUp("a combination of patterns that is too large")
        edges = {pair: node for pair, node in edges.items() if gone not in pair}
    return edges.get((start, end))


def _either(a: Node, b: Node) -> Node:
    items = [part for node in (a, b) for part in (node.items if isinstance(node, Alt) else (node,))]
    return Alt(tuple(dict.fromkeys(items)))
