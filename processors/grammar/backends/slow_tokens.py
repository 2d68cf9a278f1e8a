"""`SlowTokenGuard`: ends a constrained output after its first slow token."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["MAX_STEP_SECONDS", "WATCHED_SECONDS", "SlowTokenGuard"]

MAX_STEP_SECONDS = 0.5  # CPU time of one token
WATCHED_SECONDS = 0.01  # wall time of one token from which CPU time is measured


class SlowTokenGuard:
    """Stops an output after a token whose acceptance took more than MAX_STEP_SECONDS of CPU time.

    In some grammars each token costs a multiple of the token before, and library calls cannot be interrupted.
    Reading the CPU time of a thread takes longer than accepting most tokens, so it is read only after a token
    that took WATCHED_SECONDS of wall time.
    """

    def __init__(self, count: int = 0, slow_at: int | None = None, *, is_watched: bool = False) -> None:
        self._count, self._slow_at, self._is_watched = count, slow_at, is_watched

    @property
    def is_slow(self) -> bool:
        """Whether the output must stop here."""
        return self._slow_at is not None

    @property
    def limit(self) -> str:
        """Why the output must stop here; "" if it need not."""
        return f"a token took longer than the limit of {MAX_STEP_SECONDS:g} s" if self.is_slow else ""

    def step(self, accept: Callable[[], int | None]) -> int | None:
        """Call `accept` and return its result; None without a call if the output must stop."""
        if self.is_slow:
            return None
        now = time.thread_time if self._is_watched else time.perf_counter
        begin = now()
        accepted = accept()
        seconds = now() - begin
        self._count += accepted is not None
        if self._is_watched and accepted is not None and seconds > MAX_STEP_SECONDS:
            self._slow_at = self._count
        self._is_watched = self._is_watched or seconds > WATCHED_SECONDS
        return accepted

    def rollback(self, count: int) -> None:
        """Record that `count` tokens were undone."""
        self._count -= count
        if self._slow_at is not None and self._slow_at > self._count:
            self._slow_at = None

    def fork(self) -> SlowTokenGuard:
        """Return an independent copy."""
        return SlowTokenGuard(self._count, self._slow_at, is_watched=self._is_watched)
