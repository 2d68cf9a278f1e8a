"""The waiting queue: by priority, then first come, first served, with bounded overtaking.

Samples of a request are created when they are needed.
"""

from __future__ import annotations

import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile

from gencli.core.events import Event, Finish
from gencli.core.request import Request
from gencli.engine.sequence import Sequence

__all__ = ["WINDOW", "LookAhead", "Pending", "Samples"]

WINDOW = 64  # limit of sequences that may overtake another one
_GRAIN = 32  # tokens; shared prefixes are compared in multiples of it


class LookAhead:
    """Takes sequences from the queue for the slots that are free now.

    Candidates are the sequences of the first one's priority, submitted less than `window` after it, that fit
    the free slots. So a group that needs many slots is overtaken by fewer than `window` sequences of its
    priority. Their order: 1. longest shared prefix with the KV lanes; 2. prefill length closest to the
    previous sequence's, so that they share forward passes; 3. largest `max_tokens`, so that no long text runs
    alone at the end of a batch; 4. position in the queue. `shared(sequence)` is the number of its prompt's
    tokens in the lanes; it is called once per sequence.
    """

    def __init__(
        self, waiting: deque[Sequence], shared: Callable[[Sequence], int], window: int = WINDOW
    ) -> None:
        self._waiting, self._size = waiting, window
        self._shared = {id(one): shared(one) for one in self._window()}
        self._last_prefill: int | None = None

    def take(self, room: int) -> Sequence | None:
        """Remove and return the next sequence that needs at most `room` slots; None if there is none."""
        window = [*enumerate(self._window())]
        able = [(index, sequence) for index, sequence in window if sequence.num_slots <= room]
        if not able:
            return None
        index, sequence = max(able, key=lambda pair: self._order(pair[1]))  # the first of equals
        del self._waiting[index]
        self._last_prefill = self._prefill_length(sequence)
        return sequence

    def _window(self) -> Iterator[Sequence]:
        if not self._waiting:
            return iter(())
        first = self._waiting[0]
        end, priority = first.number + self._size, first.request.priority
        return takewhile(lambda one: one.number < end and one.request.priority == priority, self._waiting)

    def _order(self, sequence: Sequence) -> tuple[int, int, int]:
        length = self._prefill_length(sequence)
        difference = 0 if self._last_prefill is None else abs(length - self._last_prefill)
        return self._num_shared(sequence) // _GRAIN, -difference, sequence.request.limits.max_tokens

    def _prefill_length(self, sequence: Sequence) -> int:
        return len(sequence.prompt) - self._num_shared(sequence)

    def _num_shared(self, sequence: Sequence) -> int:
        return self._shared.get(id(sequence), 0)


class Samples:
    """Creates the samples of a request one by one, so that memory does not grow with `n`.

    A beam search is created as one sequence, the root of its group.
    """

    def __init__(self, request: Request, make: Callable[[int], Sequence], *, submitted: float) -> None:
        self.request, self.submitted = request, submitted
        self._make, self._next = make, 0
        self._count = request.n if request.beams is None else 1

    def take(self) -> Sequence | None:
        """Create and return the next sample; None after the last."""
        if self._next == self._count:
            return None
        self._next += 1
        return self._make(self._next - 1)

    def end(self, reason: str, matched: str | None = None) -> Iterator[Event]:
        """Yield one Finish for all samples not created yet (see `Finish.more`), with an empty text."""
        if (sequence := self.take()) is None:
            return
        sequence.unit.close(reason, matched)
        ends = sequence.unit.drain(time.monotonic())
        if sequence.group:
            yield from ends
            return
        more, self._next = self._count - self._next, self._count
        yield from (replace(event, more=more) for event in ends if isinstance(event, Finish))


class Pending:
    """Requests with samples not created yet: by priority, then in order of submission."""

    def __init__(self) -> None:
        self._queue: deque[Samples] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, samples: Samples) -> None:
        """Add a request after the others of its priority."""
        if not self._queue or self._queue[-1].request.priority <= samples.request.priority:
            self._queue.append(samples)
        else:
            insort(self._queue, samples, key=lambda one: one.request.priority)

    @property
    def priority(self) -> int | None:
        """The priority of the first request; None without one."""
        return self._queue[0].request.priority if self._queue else None

    def take(self) -> Sequence | None:
        """Create and return the next sample; None if there is none."""
        while self._queue:
            if (sequence := self._queue[0].take()) is not None:
                return sequence
            self._queue.popleft()
        return None

    def end(self, reason: str, request_id: str | None = None) -> Iterator[Event]:
        """End all samples that are not created yet, or those of one request."""
        for samples in [one for one in self._queue if request_id in (None, one.request.id)]:
            self._queue.remove(samples)
            yield from samples.end(reason)

    def end_late(self) -> Iterator[Event]:
        """End the remaining samples of requests whose `max_time` has passed."""
        now = time.monotonic()
        for samples in [s for s in self._queue if s.request.limits.is_over(now - s.submitted)]:
            self._queue.remove(samples)
            yield from samples.end("length", "max_time")
