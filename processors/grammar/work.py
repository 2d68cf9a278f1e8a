"""A bound on looking ahead in a grammar: calls of its matcher are counted, and a clock stands behind them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

__all__ = ["Work"]

_MAX_SECONDS = 1.0  # of computing; the counted calls take a tenth of it in ordinary grammars
_PER_CLOCK = 16  # calls between two looks at the clock


class Work:
    """So many calls of a matcher may still be made.

    Calls are counted, not timed, so that a text does not depend on the machine. The clock only stops a
    grammar in which single calls are slow.
    """

    def __init__(self, calls: int) -> None:
        self._left, self._begin = calls, time.thread_time()

    @property
    def is_spent(self) -> bool:
        """Whether no call is left."""
        return self._left <= 0

    def spend(self, calls: int = 1) -> bool:
        """Count calls that are about to be made; False if there are none left."""
        if self._left <= 0:
            return False
        before, self._left = self._left, self._left - calls
        is_due = before // _PER_CLOCK != self._left // _PER_CLOCK
        if is_due and time.thread_time() - self._begin > _MAX_SECONDS:
            self._left = 0
        return self._left > 0

    def each(self, tokens: Iterable[int]) -> Iterator[int]:
        """These tokens, as long as there is a call left for each."""
        return (token for token in tokens if self.spend())
