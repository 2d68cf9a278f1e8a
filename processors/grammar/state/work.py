"""`Work`: a budget of matcher calls for searches in a grammar, backed by a time limit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

__all__ = ["Work"]

# Limits of CPU time; ordinary grammars use a tenth of them for all counted calls.
_LEAST_SECONDS = 1.0
_CALLS_PER_SECOND = 12_000
_PER_CLOCK = 16  # matcher calls between two readings of the clock


class Work:
    """A budget of `calls` of a matcher.

    Calls are counted rather than timed, so that the text does not depend on the machine. The clock only stops
    grammars in which a single call is slow.
    """

    def __init__(self, calls: int) -> None:
        self._left, self._begin = calls, time.thread_time()
        self._seconds = max(_LEAST_SECONDS, calls / _CALLS_PER_SECOND)

    @property
    def is_spent(self) -> bool:
        """Whether the budget is used up."""
        return self._left <= 0

    def half(self) -> Work:
        """Take half of the calls that are left for a search that is followed by another one."""
        taken = self._left // 2
        self._left -= taken
        return Work(taken)

    def spend(self, calls: int = 1) -> bool:
        """Count `calls` before they are made; return False if the budget is used up."""
        if self._left <= 0:
            return False
        before, self._left = self._left, self._left - calls
        is_due = before // _PER_CLOCK != self._left // _PER_CLOCK
        if is_due and time.thread_time() - self._begin > self._seconds:
            self._left = 0
        return self._left > 0

    def each(self, tokens: Iterable[int]) -> Iterator[int]:
        """Yield the tokens, one call of the budget for each, until it is used up."""
        return (token for token in tokens if self.spend())
