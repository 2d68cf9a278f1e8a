"""What the tokens of one output cost: the first that costs too much is the last."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["MAX_STEP_SECONDS", "Pace"]

MAX_STEP_SECONDS = 0.5  # of computing, for one token


class Pace:
    """Counts accepted tokens. In some grammars each costs a multiple of the one before it, and no call of
    the libraries can be interrupted; so there is no next one after a token that was slow."""

    def __init__(self, count: int = 0, slow_at: int | None = None) -> None:
        self._count, self._slow_at = count, slow_at

    @property
    def is_slow(self) -> bool:
        """Whether the output has to stop here."""
        return self._slow_at is not None

    def step(self, accept: Callable[[], bool]) -> bool:
        """Accept a token; False without a try if the output has to stop here."""
        if self.is_slow:
            return False
        begin = time.thread_time()
        accepted = accept()
        self._count += accepted
        if accepted and time.thread_time() - begin > MAX_STEP_SECONDS:
            self._slow_at = self._count
        return accepted

    def rollback(self, count: int) -> None:
        """Tokens were taken back."""
        self._count -= count
        if self._slow_at is not None and self._slow_at > self._count:
            self._slow_at = None

    def fork(self) -> Pace:
        """An independent copy."""
        return Pace(self._count, self._slow_at)
