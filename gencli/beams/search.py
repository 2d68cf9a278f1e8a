"""The search of one request: which beams go on, which texts are finished, and when it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gencli.beams.candidates import Candidate
from gencli.beams.finished import FinishedList
from gencli.beams.score import best_reachable, length_score
from gencli.core.request import Beams
from gencli.engine.sequence import Sequence as Beam
from gencli.engine.sequence import Taken

__all__ = ["Child", "Extend", "Search"]


@dataclass(frozen=True, slots=True)
class Child:
    """A beam with one more token, and the slot of the beam that it continues."""

    parent: int
    beam: Beam
    taken: Taken


Extend = Callable[[Beam, int], Child]  # a copy of the beam with this token; raises what went wrong


class Search:
    """Follows the `width` most likely texts of a request, from a `root` that holds its prompt alone.

    `running` are its beams, `slots` their places once it has begun. `most` is how many tokens a text may
    have, `num_ends` how many token ids end one.
    """

    def __init__(self, root: Beam, *, most: int, num_ends: int) -> None:
        self.request, self.running = root.request, [root]
        self.slots: tuple[int, ...] = ()
        self._beams = self.request.beams or Beams(1)
        self.finished = FinishedList[Beam](self._beams.width)
        self._most = most
        # Among this many candidates at least `width` do not end their text.
        self.at_first = self.width * (1 + num_ends)

    @property
    def width(self) -> int:
        """How many texts are followed at once."""
        return self._beams.width

    def begin(self, slots: tuple[int, ...], now: float) -> None:
        """Take the slots, the first of them for the root."""
        (root,) = self.running
        self.slots, root.slot, root.started = slots, slots[0], now

    @property
    def sums(self) -> list[float]:
        """The logprob of each running beam."""
        return [beam.logprob for beam in self.running]

    def advance(self, candidates: Iterable[Candidate], extend: Extend) -> list[Child]:
        """Choose the beams of the next step among the candidates, the best of which come first.

        A text that ends is finished if it is among the `width` best candidates, and else forgotten.
        """
        children = list[Child]()
        # With the last token every text ends: no candidate, however many, would go on.
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
                self._finish(child.beam, len(parent.output) + 1)  # what completes a document is not chosen
        self.running = [child.beam for child in children]
        return children

    def close(self, reason: str, matched: str | None = None) -> None:
        """End what runs where it stands."""
        for beam in self.running:
            beam.close(reason, matched)
            self._finish(beam, len(beam.output))

    @property
    def is_over(self) -> bool:
        """Whether nothing that runs can change the result."""
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
