"""Counts of token n-grams: a suffix tree of texts with bounded depth and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["DEPTH", "Guess", "SuffixCounts"]

DEPTH = 10  # longest counted n-gram, in tokens


@dataclass(frozen=True, slots=True)
class Guess:
    """A possible next token and its estimated probability."""

    token: int
    probability: float


class SuffixCounts:
    """Number of occurrences of each n-gram of up to DEPTH tokens, as a tree that grows token by token.

    A node is an n-gram; node 0 is the empty one. Each node has the number of its continuations and the most
    frequent one. A full tree, of `most` nodes, adds no new n-grams.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._child: dict[tuple[int, int], int] = {}  # child node by node and token
        self._count, self._followed, self._best = [0], [0], [-1]

    def __len__(self) -> int:
        return len(self._count)

    @property
    def is_full(self) -> bool:
        """Whether new n-grams are no longer added."""
        return len(self) >= self._most

    def grow(self, ends: Sequence[int], token: int) -> list[int]:
        """Count a token after a text. `ends`: nodes of the text's suffixes, the shortest first.

        Return the nodes of the longer text's suffixes. An empty text has [0].
        """
        grown = [0]
        for node in ends:
            child = self._child.get((node, token))
            if child is None:
                if self.is_full:
                    break  # longer n-grams with this ending are unknown too
                child = self._child[node, token] = len(self._count)
                for column, value in ((self._count, 0), (self._followed, 0), (self._best, -1)):
                    column.append(value)
            self._count[child] += 1
            self._followed[node] += 1
            best = self._best[node]
            if best < 0 or self._count[child] >= self._count[self._child[node, best]]:
                self._best[node] = token  # the latest of equal counts
            grown.append(child)
        return grown[:DEPTH]

    def ends(self, text: Sequence[int]) -> list[int]:
        """Nodes of the known suffixes of a text, the shortest first."""
        nodes = [0]
        for token in text[-DEPTH + 1 :]:
            nodes = self.step(nodes, token)
        return nodes

    def step(self, ends: Sequence[int], token: int) -> list[int]:
        """As `grow`, without counting: unknown n-grams are left out."""
        children = (self._child.get((node, token)) for node in ends)
        return [0, *(child for child in children if child is not None)][:DEPTH]

    def guesses(self, ends: Sequence[int]) -> Iterator[Guess]:
        """Yield the most frequent continuation, token by token, of the longest suffix with continuations.

        Probability: count / (number of continuations + 1/d), for a suffix of d tokens. A continuation seen
        once has 1/2 after one token and 8/9 after eight.
        """
        while True:
            depth = next((d for d in range(len(ends) - 1, 0, -1) if self._followed[ends[d]]), 0)
            if not depth:
                return
            node = ends[depth]
            token = self._best[node]
            count = self._count[self._child[node, token]]
            yield Guess(token, count / (self._followed[node] + 1 / depth))
            ends = self.step(ends, token)
