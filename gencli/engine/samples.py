"""Samples that are not in the queue yet: each is created when a slot may soon be free."""

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
    """Creates the samples of a request in order; memory for those not created yet does not grow with `n`.

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
        """Yield the events that end the remaining samples, each with an empty text."""
        first = self._next
        if (sequence := self.take()) is None:
            return
        sequence.unit.close(reason, matched)
        ends = sequence.unit.drain(time.monotonic())
        if sequence.group:
            yield from ends
            return
        self._next = self._count
        for sample in range(first, self._count):
            yield from (replace(event, sample=sample) for event in ends)


class Pending:
    """Requests with samples that are not created yet, in order of submission."""

    def __init__(self) -> None:
        self._queue: deque[Samples] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, samples: Samples) -> None:
        """Append a request."""
        self._queue.append(samples)

    def take(self) -> Sequence | None:
        """Create and return the next sample; None if there is none."""
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
        """End the remaining samples of requests whose `max_time` has passed."""
        now = time.monotonic()
        for samples in [s for s in self._queue if s.request.limits.is_over(now - s.submitted)]:
            self._queue.remove(samples)
            yield from samples.end("length", "max_time")
