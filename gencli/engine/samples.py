"""The samples of a request that have not begun: each is made when its turn is near."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from gencli.core.events import Event
from gencli.core.request import Request
from gencli.engine.sequence import Sequence

__all__ = ["Pending", "Samples"]


class Samples:
    """Makes the samples of a request in their order; what they take until then does not grow with `n`."""

    def __init__(self, request: Request, make: Callable[[int], Sequence], *, submitted: float) -> None:
        self.request, self.submitted = request, submitted
        self._make, self._next = make, 0

    def take(self) -> Sequence | None:
        """The next sample; None if all are made."""
        if self._next == self.request.n:
            return None
        self._next += 1
        return self._make(self._next - 1)

    def end(self, reason: str, matched: str | None = None) -> Iterator[Event]:
        """End those that are left, all alike and without a text, one after the other: they may be many."""
        first = self._next
        if (sequence := self.take()) is None:
            return
        sequence.close(reason, matched)
        ends = sequence.drain(time.monotonic())
        self._next = self.request.n
        for sample in range(first, self.request.n):
            yield from (replace(event, sample=sample) for event in ends)


class Pending:
    """Requests whose samples are not all made, in the order in which they came."""

    def __init__(self) -> None:
        self._queue: deque[Samples] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, samples: Samples) -> None:
        """Let a request wait."""
        self._queue.append(samples)

    def take(self) -> Sequence | None:
        """The next sample; None if there is none."""
        while self._queue:
            if (sequence := self._queue[0].take()) is not None:
                return sequence
            self._queue.popleft()
        return None

    def end(self, reason: str, request_id: str | None = None) -> Iterator[Event]:
        """End all samples that have not begun, or those of one request."""
        for samples in [one for one in self._queue if request_id in (None, one.request.id)]:
            self._queue.remove(samples)
            yield from samples.end(reason)

    def end_late(self) -> Iterator[Event]:
        """End what has run out of its time."""
        now = time.monotonic()
        for samples in [s for s in self._queue if s.request.limits.is_over(now - s.submitted)]:
            self._queue.remove(samples)
            yield from samples.end("length", "max_time")
