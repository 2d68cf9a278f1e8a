"""The samples of a request that have not begun: each is made when its turn is near."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from gencli.events import Event
from gencli.request import Request
from gencli.sequence import Sequence

__all__ = ["Samples"]


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

    def end(self, reason: str, matched: str | None, now: float) -> Iterator[Event]:
        """End those that are left, all alike and without a text."""
        first = self._next
        if (sequence := self.take()) is None:
            return
        sequence.close(reason, matched)
        ends = sequence.drain(now)
        self._next = self.request.n
        for sample in range(first, self.request.n):
            yield from (replace(event, sample=sample) for event in ends)
