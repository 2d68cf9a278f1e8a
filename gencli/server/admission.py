"""Admission control of the server: calls are counted before any work, in the event loop alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gencli.server.wire.errors import ApiError

__all__ = ["Admission", "Ticket"]


class Ticket:
    """The place of one call; `size`: its number of samples."""

    def __init__(self, admission: Admission) -> None:
        self._admission, self.size = admission, 1

    def grow(self, size: int) -> None:
        """Count the call as `size` samples. Raises ApiError 429 if other calls leave too little room."""
        others = self._admission.num_samples - self.size
        if others and others + size > self._admission.most:
            raise self._admission.full()
        self._admission.num_samples += size - self.size
        self.size = size


class Admission:
    """Counts the samples of all unanswered calls: at most `most`, or one call of any size."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.num_samples = self.num_calls = self.num_refused = 0
        self.is_draining = False

    @property
    def is_full(self) -> bool:
        """Whether no call is accepted now."""
        return self.num_samples >= self.most

    @contextmanager
    def enter(self) -> Iterator[Ticket]:
        """Yield the ticket of a call; it is returned at the end of the block. Raises ApiError 429 or 503."""
        if self.is_draining:
            raise ApiError(503, "The server is shutting down.", code="shutdown")
        if self.is_full:
            raise self.full()
        ticket = Ticket(self)
        self.num_samples += 1
        self.num_calls += 1
        try:
            yield ticket
        finally:
            self.num_samples -= ticket.size
            self.num_calls -= 1

    def full(self) -> ApiError:
        """Return the error for a full server, and count the refusal."""
        self.num_refused += 1
        return ApiError(429, f"The server is full: it takes {self.most} texts at a time.", code="queue_full")
