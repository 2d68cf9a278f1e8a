"""Noticing that a generation only repeats itself."""

from __future__ import annotations

import copy

__all__ = ["MAX_PERIOD", "LoopDetector"]

MAX_PERIOD = 64  # tokens; a looping sentence is shorter


class LoopDetector:
    """Reports when the last tokens are one pattern of 1..MAX_PERIOD tokens, `times` times in a row.

    A token costs MAX_PERIOD comparisons. `times` = 0 switches it off.
    """

    def __init__(self, times: int) -> None:
        self._times = times
        self._tokens: list[int] = []  # the last MAX_PERIOD, newest first
        self._runs = [0] * MAX_PERIOD  # how many tokens up to now equal the one `period` before them

    def fork(self) -> LoopDetector:
        """An independent copy, which goes on from here."""
        other = copy.copy(self)
        other._runs = self._runs.copy()
        return other

    def push(self, token_id: int) -> bool:
        """Add a token; True if it completes a loop."""
        if not self._times:
            return False
        looping = False
        for index, earlier in enumerate(self._tokens):
            run = self._runs[index] + 1 if earlier == token_id else 0
            self._runs[index] = run
            # The first occurrence is not counted: it equals nothing before it.
            looping = looping or run >= (index + 1) * (self._times - 1)
        self._tokens = [token_id, *self._tokens[: MAX_PERIOD - 1]]
        return looping
