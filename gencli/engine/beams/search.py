"""Beam search of one request: the running beams, the finished texts, and the stopping rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, cast

from gencli.core.events import Error, Event, Finish, Token
from gencli.core.request import Beams
from gencli.engine.beams.candidates import Candidate
from gencli.engine.beams.results import best_reachable, chosen_events, interrupted, length_score
from gencli.engine.branches import Child
from gencli.engine.group import Group
from gencli.engine.sequence import Sequence as Beam
from gencli.text.text_stream import TextStream

__all__ = ["Extend", "FinishedList", "Search"]

T = TypeVar("T")


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


class Search(Group):
    """Beam search, from a `root` that holds the prompt only. Its members are the running beams.

    `max_tokens`: maximum number of tokens of a text. `num_ends`: number of token ids that end a text.
    """

    def __init__(self, root: Beam, *, max_tokens: int, num_ends: int) -> None:
        self._beams = root.request.beams or Beams(1)
        super().__init__(root, self._beams.width)
        self.finished = FinishedList[Beam](self.width)
        self._max_tokens, self._is_interrupted = max_tokens, False
        # At least `width` of this many candidates do not end their text.
        self.num_top = self.width * (1 + num_ends)

    @property
    def sums(self) -> list[float]:
        """The log-probability of each running beam."""
        return [beam.logprob for beam in self.members]

    def advance(self, candidates: Iterable[Candidate], extend: Extend) -> list[Child]:
        """Select the beams of the next step from the candidates, which are sorted best first; return them.

        A text that ends is finished if it is among the `width` best candidates, and dropped otherwise.
        """
        children = list[Child]()
        # Every text ends with its last token, so no candidate could continue.
        wanted = 0 if len(self.members[0].output) + 1 >= self._max_tokens else self.width
        for rank, candidate in enumerate(candidates):
            if rank >= self.width and len(children) >= wanted:
                break
            parent = self.members[candidate.beam]
            child = extend(parent, candidate.token)
            child.branch.score(candidate.logprob)
            if child.branch.finish is None and len(children) < self.width:
                children.append(child)
            elif child.branch.finish is not None and rank < self.width:
                self._finish(child.branch, len(parent.output) + 1)  # without tokens that complete a document
        self.members = [child.branch for child in children]
        return children

    def close(self, reason: str, matched: str | None = None) -> None:
        self._is_interrupted = reason == "interrupted"
        for beam in self.members:
            beam.close(reason, matched)
            self._finish(beam, len(beam.output))

    def drain(self, now: float, error: Exception | None = None) -> list[Event]:
        request = self.request
        if error is not None:
            return [Error(request.id, j, type(error).__name__, str(error), "") for j in range(request.n)]
        scored = [
            (
                score,
                beam.logprob,
                cast(Finish, beam.drain(now)[-1]),
                Token(request.id, 0, "", tuple(beam.output), beam.logprobs),
            )
            for score, beam in self.finished.entries
        ]
        scored.sort(
            key=lambda entry: (len(entry[3].ids), entry[3].ids)
        )  # among equal scores the shorter text comes first
        events = chosen_events(request.id, request.n, scored)
        return interrupted(events) if self._is_interrupted else events

    def restart(self, stream: TextStream) -> None:
        self.members, self.slots = self.members[:1], ()
        self.members[0].restart(stream)
        self.finished = FinishedList[Beam](self.width)

    @property
    def is_over(self) -> bool:
        """Whether no running beam can change the result."""
        if not self.members:
            return True
        if not self.finished.is_full:
            return False
        if self.width == 1 or self._beams.early_stopping:
            return True
        return max(map(self._best_reachable, self.members)) <= self.finished.worst

    def _best_reachable(self, beam: Beam) -> float:
        penalty = self._beams.length_penalty
        return best_reachable(beam.logprob, len(beam.output), self._max_tokens, penalty)

    def _finish(self, beam: Beam, length: int) -> None:
        self.finished.add(length_score(beam.logprob, length, self._beams.length_penalty), beam)
