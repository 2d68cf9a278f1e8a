"""Which of the waiting sequences is next: not always the first, but never long after its turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import takewhile

from gencli.core.prefixes import Tokens
from gencli.engine.sequence import Sequence

__all__ = ["WINDOW", "LookAhead"]

WINDOW = 64  # sequences that may overtake one, at the most
_GRAIN = 32  # tokens of prefix that count as a difference


class LookAhead:
    """Takes sequences from a queue for slots that are free at once.

    First come those that share most with the lanes; among equals, those whose rest to read is as long as
    that of the one taken before, since they share a pass; then those that may become longest, so that no
    long text is alone in the end; then the order of the queue. `shared` tells how many tokens of a prompt
    the lanes have; it is asked once for each sequence in the window.
    """

    def __init__(self, waiting: deque[Sequence], shared: Callable[[Tokens], int]) -> None:
        self._waiting = waiting
        self._shared = {id(one): shared(one.prompt) for one in self._window()}
        self._last: int | None = None

    def take(self) -> Sequence:
        """Take the next one out of the queue."""
        window = list(self._window())
        place = max(range(len(window)), key=lambda i: self._merit(window[i]))  # the first of equals
        sequence = window[place]
        del self._waiting[place]
        self._last = self._rest(sequence)
        return sequence

    def _window(self) -> Iterator[Sequence]:
        last = self._waiting[0].number + WINDOW
        return takewhile(lambda one: one.number < last, self._waiting)

    def _merit(self, sequence: Sequence) -> tuple[int, int, int]:
        unlike = 0 if self._last is None else abs(self._rest(sequence) - self._last)
        return self._common(sequence) // _GRAIN, -unlike, sequence.request.limits.max_tokens

    def _rest(self, sequence: Sequence) -> int:
        return len(sequence.prompt) - self._common(sequence)

    def _common(self, sequence: Sequence) -> int:
        return self._shared.get(id(sequence), 0)
