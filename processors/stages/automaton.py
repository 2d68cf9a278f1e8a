"""`Automaton`: Aho-Corasick matching of several byte strings."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

__all__ = ["Automaton"]


class Automaton:
    """Finds several byte strings at once (Aho and Corasick 1975), as a complete table; state 0 is the start.

    `table[state][byte]`: next state. `accepting[state]`: some text ends here. `fallback[state]`: state of the
    longest proper suffix. `states`: all states, breadth first. `paths`: the states of each text, without the
    start. `depth[state]`: length of the longest suffix of the input that is a prefix of a text.
    `ending[state]`: length of the longest text that ends here; 0 if none does.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._children: list[dict[int, int]] = [{}]
        self.paths = [self._insert(text) for text in texts]
        size = len(self._children)
        self.table = [[0] * 256] * size
        self.fallback = [0] * size
        self.accepting = [False] * size
        for path in self.paths:
            self.accepting[path[-1]] = True
        self.states = self._complete()
        self.depth, self.ending = [0] * size, [0] * size
        for path in self.paths:
            for depth, state in enumerate(path, start=1):
                self.depth[state] = depth
            self.ending[path[-1]] = len(path)
        for state in self.states:
            self.ending[state] = self.ending[state] or self.ending[self.fallback[state]]

    def hits(self, data: bytes) -> bool:
        """Whether any of the texts occurs in `data`."""
        state = 0
        for byte in data:
            state = self.table[state][byte]
            if self.accepting[state]:
                return True
        return False

    def _insert(self, text: bytes) -> list[int]:
        path, state = [], 0
        for byte in text:
            if byte not in self._children[state]:
                self._children[state][byte] = len(self._children)
                self._children.append({})
            state = self._children[state][byte]
            path.append(state)
        return path

    def _complete(self) -> list[int]:
        """Fill the table breadth first: without a child for a byte, a state goes where its fallback goes."""
        order: list[int] = []
        queue = deque([0])
        while queue:
            state = queue.popleft()
            order.append(state)
            row = self.table[self.fallback[state]].copy()
            for byte, child in self._children[state].items():
                self.fallback[child] = row[byte]
                self.accepting[child] |= self.accepting[row[byte]]
                row[byte] = child
                queue.append(child)
            self.table[state] = row
        return order
