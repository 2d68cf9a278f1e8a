"""Counts of what follows what: a suffix tree of texts, cut at a depth, with bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["DEPTH", "Guess", "SuffixCounts"]

DEPTH = 10  # tokens of a run that is counted, the one that follows included


@dataclass(frozen=True, slots=True)
class Guess:
    """A token that may follow, and how likely the counts make it."""

    token: int
    probability: float


class SuffixCounts:
    """How often each run of up to DEPTH tokens occurred, as a tree that grows token by token.

    A node is a run; node 0 is the empty one. Each node knows how often anything followed it and what
    followed most often. Beyond `most` nodes runs that are new are not taken up.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._child: dict[tuple[int, int], int] = {}  # by node and token
        self._count, self._followed, self._best = [0], [0], [-1]

    def __len__(self) -> int:
        return len(self._count)

    @property
    def is_full(self) -> bool:
        """Whether nothing new is taken up."""
        return len(self) >= self._most

    def grow(self, ends: Sequence[int], token: int) -> list[int]:
        """Count a token behind a text; `ends` are the nodes of the text's last runs, the shortest first.

        Returns those of the text with the token; [0] is a text without tokens.
        """
        grown = [0]
        for node in ends:
            child = self._child.get((node, token))
            if child is None:
                if self.is_full:
                    break  # no longer run that ends so is known either
                child = self._child[node, token] = len(self._count)
                for column, value in ((self._count, 0), (self._followed, 0), (self._best, -1)):
                    column.append(value)
            self._count[child] += 1
            self._followed[node] += 1
            best = self._best[node]
            if best < 0 or self._count[child] >= self._count[self._child[node, best]]:
                self._best[node] = token  # of equal counts the latest
            grown.append(child)
        return grown[:DEPTH]

    def ends(self, text: Sequence[int]) -> list[int]:
        """The nodes of the runs that the text ends with, as far as they are known."""
        nodes = [0]
        for token in text[-DEPTH + 1 :]:
            nodes = self.step(nodes, token)
        return nodes

    def step(self, ends: Sequence[int], token: int) -> list[int]:
        """As `grow`, but nothing is counted: runs that are not known are left out."""
        children = (self._child.get((node, token)) for node in ends)
        return [0, *(child for child in children if child is not None)][:DEPTH]

    def guesses(self, ends: Sequence[int]) -> Iterator[Guess]:
        """What follows, token after token, each behind the longest run that anything followed.

        A run of d tokens is trusted as if 1/d times more had followed it than did: what came once behind
        one token is worth 1/2, behind eight tokens 8/9.
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
