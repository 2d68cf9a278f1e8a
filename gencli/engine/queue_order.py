"""Order of the waiting queue: first come, first served, with bounded overtaking."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import takewhile

from gencli.core.prefixes import Tokens
from gencli.engine.sequence import Sequence

__all__ = ["WINDOW", "LookAhead"]

WINDOW = 64  # most sequences that may overtake one
_GRAIN = 32  # tokens; shared prefixes are compared in multiples of it


class LookAhead:
    """Takes sequences from the queue for the slots that are free now.

    Candidates are the sequences submitted less than WINDOW after the first in the queue that fit the free
    slots. So a group that needs many slots is overtaken by fewer than WINDOW sequences. Their order:
    1. longest shared prefix with the KV lanes;
    2. prefill length closest to that of the sequence taken before, as they then share forward passes;
    3. largest `max_tokens`, so that no long text runs alone at the end;
    4. position in the queue.
    `shared(prompt)` is the number of prompt tokens in the lanes; it is called once per sequence.
    """

    def __init__(self, waiting: deque[Sequence], shared: Callable[[Tokens], int]) -> None:
        self._waiting = waiting
        self._shared = {id(one): shared(one.prompt) for one in self._window()}
        self._last_prefill: int | None = None

    def take(self, room: int) -> Sequence | None:
        """Remove and return the next sequence that needs at most `room` slots; None if there is none."""
        window = [*enumerate(self._window())]
        able = [(index, sequence) for index, sequence in window if sequence.num_slots <= room]
        if not able:
            return None
        index, sequence = max(able, key=lambda pair: self._priority(pair[1]))  # the first of equals
        del self._waiting[index]
        self._last_prefill = self._prefill_length(sequence)
        return sequence

    def _window(self) -> Iterator[Sequence]:
        end = self._waiting[0].number + WINDOW if self._waiting else 0
        return takewhile(lambda one: one.number < end, self._waiting)

    def _priority(self, sequence: Sequence) -> tuple[int, int, int]:
        length = self._prefill_length(sequence)
        difference = 0 if self._last_prefill is None else abs(length - self._last_prefill)
        return self._num_shared(sequence) // _GRAIN, -difference, sequence.request.limits.max_tokens

    def _prefill_length(self, sequence: Sequence) -> int:
        return len(sequence.prompt) - self._num_shared(sequence)

    def _num_shared(self, sequence: Sequence) -> int:
        return self._shared.get(id(sequence), 0)
