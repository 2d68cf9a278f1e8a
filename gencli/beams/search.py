"""Beam search of one request: the running beams, the finished texts, and the stopping rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gencli.beams.candidates import Candidate
from gencli.beams.results import best_reachable, length_score
from gencli.core.request import Beams
from gencli.engine.sequence import Sequence as Beam
from gencli.engine.sequence import Taken

__all__ = ["Child", "Extend", "FinishedList", "Search"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Child:
    """A beam extended by one token, and the slot of its parent beam."""

    parent: int
    beam: Beam
    taken: Taken


Extend = Callable[[Beam, int], Child]  # extends a copy of the beam by a token; raises GencliError


class FinishedList(Generic[T]):
    """The `size` items of the highest scores, best first; among equal scores the earlier item first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: list[tuple[float, T]] = []

    def add(self, score: float, item: T) -> None:
        """Insert the item, and drop the worst one if the list is too long."""
        self._entries.append((score, item))
        self._entries.sort(key=lambda entry: -entry[0])  # stable
        del self._entries[self._size :]

    @property
    def is_full(self) -> bool:
        """Whether the list has `size` items."""
        return len(self._entries) == self._size

    @property
    def worst(self) -> float:
        """The lowest score of a full list; minus infinity while it is not full."""
        return self._entries[-1][0] if self.is_full else float("-inf")

    @property
    def entries(self) -> tuple[tuple[float, T], ...]:
        """Scores and items, best first."""
        return tuple(self._entries)


class Search:
    """Beam search of `width` beams, from a `root` that holds the prompt only.

    `running` are the beams, `slots` all slots of the search once it has begun. `most` is the maximum number
    of tokens of a text, `num_ends` the number of token ids that end one.
    """

    def __init__(self, root: Beam, *, most: int, num_ends: int) -> None:
        self.request, self.running = root.request, [root]
        self.slots: tuple[int, ...] = ()
        self._beams = self.request.beams or Beams(1)
        self.finished = FinishedList[Beam](self._beams.width)
        self._most = most
        # At least `width` of this many candidates do not end their text.
        self.num_top = self.width * (1 + num_ends)

    @property
    def width(self) -> int:
        """The number of beams."""
        return self._beams.width

    def begin(self, slots: tuple[int, ...], now: float) -> None:
        """Assign the slots of the search; the root gets the first one."""
        (root,) = self.running
        self.slots, root.slot, root.started = slots, slots[0], now

    @property
    def sums(self) -> list[float]:
        """The log-probability of each running beam."""
        return [beam.logprob for beam in self.running]

    def advance(self, candidates: Iterable[Candidate], extend: Extend) -> list[Child]:
        """Select the beams of the next step from the candidates, which are sorted best first; return them.

        A text that ends is finished if it is among the `width` best candidates, and dropped otherwise.
        """
        children = list[Child]()
        # Every text ends with its last token, so no candidate could continue.
        wanted = 0 if len(self.running[0].output) + 1 >= self._most else self.width
        for rank, candidate in enumerate(candidates):
            if rank >= self.width and len(children) >= wanted:
                break
            parent = self.running[candidate.beam]
            child = extend(parent, candidate.token)
            child.beam.logprob = candidate.logprob
            if child.beam.finish is None and len(children) < self.width:
                children.append(child)
            elif child.beam.finish is not None and rank < self.width:
                self._finish(child.beam, len(parent.output) + 1)  # without the tokens that close a document
        self.running = [child.beam for child in children]
        return children

    def close(self, reason: str, matched: str | None = None) -> None:
        """Finish all running beams as they are."""
        for beam in self.running:
            beam.close(reason, matched)
            self._finish(beam, len(beam.output))

    @property
    def is_over(self) -> bool:
        """Whether no running beam can change the result."""
        if not self.running:
            return True
        if not self.finished.is_full:
            return False
        if self.width == 1 or self._beams.early_stopping:
            return True
        return max(map(self._best_reachable, self.running)) <= self.finished.worst

    def _best_reachable(self, beam: Beam) -> float:
        penalty = self._beams.length_penalty
        return best_reachable(beam.logprob, len(beam.output), self._most, penalty)

    def _finish(self, beam: Beam, length: int) -> None:
        self.finished.add(length_score(beam.logprob, length, self._beams.length_penalty), beam)
