"""What the tokens of one output cost: the first that costs too much is the last."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["MAX_STEP_SECONDS", "WATCHED_SECONDS", "SlowTokenGuard"]

MAX_STEP_SECONDS = 0.5  # of computing, for one token
WATCHED_SECONDS = 0.01  # by the clock, which is cheap to read; from there on computing is measured


class SlowTokenGuard:
    """Counts accepted tokens. In some grammars each costs a multiple of the one before it, and no call of
    the libraries can be interrupted; so there is no next one after a token that was slow.

    Far more tokens are tried than chosen, and asking for a thread's time takes longer than most of them; so
    that is done only behind a token that took some time by the clock."""

    def __init__(self, count: int = 0, slow_at: int | None = None, *, is_watched: bool = False) -> None:
        self._count, self._slow_at, self._is_watched = count, slow_at, is_watched

    @property
    def is_slow(self) -> bool:
        """Whether the output has to stop here."""
        return self._slow_at is not None

    @property
    def limit(self) -> str:
        """Why the output has to stop here; "" if it need not."""
        return f"a token took longer than the limit of {MAX_STEP_SECONDS:g} s" if self.is_slow else ""

    def step(self, accept: Callable[[], int | None]) -> int | None:
        """Accept a token, which is returned if it was; None without a try if the output has to stop here."""
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
        """Tokens were taken back."""
        self._count -= count
        if self._slow_at is not None and self._slow_at > self._count:
            self._slow_at = None

    def fork(self) -> SlowTokenGuard:
        """An independent copy."""
        return SlowTokenGuard(self._count, self._slow_at, is_watched=self._is_watched)
