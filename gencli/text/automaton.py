"""Aho-Corasick search for several strings in text that arrives in pieces."""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import NamedTuple

from gencli.errors import UsageError

__all__ = ["Found", "StringFinder", "check_strings"]


class Found(NamedTuple):
    """A match at text[start:stop], found after `done` characters."""

    start: int
    stop: int
    done: int


def check_strings(strings: tuple[str, ...]) -> None:
    """Raise UsageError if a stop string is empty."""
    if "" in strings:
        raise UsageError(
            "A stop string is empty.", hint="It would stop before the first token; leave it out."
        )


class _Node:
    """State of the automaton: the longest prefix of a stop string in which the text ends."""

    __slots__ = ("children", "depth", "fallback", "match", "num_held")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.children: dict[str, _Node] = {}
        self.fallback: _Node | None = None  # of the longest proper suffix that is a prefix too
        self.match = -1  # index of the first listed string that ends here; -1 for none
        self.num_held = 0  # length of the longest suffix that may still grow into a string

    def step(self, char: str) -> _Node:
        node = self
        while char not in node.children:
            if node.fallback is None:
                return node
            node = node.fallback
        return node.children[char]


@lru_cache(maxsize=64)
def _automaton(strings: tuple[str, ...]) -> _Node:
    """Return the root of the automaton. It is read-only: all requests with these strings share it."""
    root = _Node(0)
    for index, string in enumerate(strings):
        node = root
        for depth, char in enumerate(string, 1):
            node = node.children.setdefault(char, _Node(depth))
        node.match = index if node.match < 0 else node.match
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for char, child in node.children.items():
            child.fallback = node.fallback.step(char) if node.fallback else root
            _inherit(child, child.fallback)
            queue.append(child)
    return root


def _inherit(node: _Node, fallback: _Node) -> None:
    both = [match for match in (node.match, fallback.match) if match >= 0]
    node.match = min(both, default=-1)
    node.num_held = node.depth if node.children else fallback.num_held


class StringFinder:
    """Finds the string that completes first; among strings completing at once, the first listed.

    Takes constant time per character.
    """

    def __init__(self, strings: tuple[str, ...]) -> None:
        check_strings(strings)
        self._strings = strings
        self._node = _automaton(strings)
        self._num_read = 0

    @property
    def num_held(self) -> int:
        """Number of last characters in which a string may have begun."""
        return self._node.num_held

    def feed(self, text: str, *, armed: bool = True) -> Found | None:
        """Read `text`; a string that completes in it is a match only if `armed`."""
        node = self._node
        for position, char in enumerate(text, self._num_read + 1):
            node = node.step(char)
            if armed and node.match >= 0:
                length = len(self._strings[node.match])
                return Found(position - length, position, position)
        self._node = node
        self._num_read += len(text)
        return None
