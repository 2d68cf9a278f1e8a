"""The bar of a call of an LLM: what is done, tokens a second, time left, on one line of stderr."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TextIO

from gencli.results.rate import Meter
from gencli.units import clock

__all__ = ["Bar", "is_watched", "state_of"]

_EACH = 0.1  # seconds between two drawings
_WAIT = 1.0  # seconds before the first drawing, so that short calls draw nothing
_CELLS = 24

State = Callable[[float], tuple[int, str]]  # returns at a time what is done, and what else the line says


def is_watched(stream: TextIO) -> bool:
    """Return whether somebody sees the stream: a terminal, or the output of a notebook's cell."""
    ask = getattr(stream, "isatty", lambda: False)  # a program's own stream may have write() alone
    is_terminal = not getattr(stream, "closed", False) and ask()
    return is_terminal or type(stream).__module__ == "ipykernel.iostream"


def state_of(meter: Meter) -> State:
    """Return the state of a run: samples done, and speed, time left and prompts in prefill as text."""

    def state(now: float) -> tuple[int, str]:
        pace = meter.pace(now)
        speed = "" if pace.speed is None else f"{pace.speed:,.0f} tok/s"
        left = "" if not pace.left else f"{clock(pace.left)} left"
        return pace.done, ", ".join(filter(None, (speed, left, pace.reading)))

    return state


class Bar:
    """Draws the progress of `total` results. `progress`: None draws for who watches, after a second.

    The last line stays. A context manager, so that the line ends with the call, also in an error.
    """

    def __init__(
        self,
        total: int,
        state: State,
        progress: bool | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._state, self._now = total, state, now
        self._is_on = sys.stderr is not None and (is_watched(sys.stderr) if progress is None else progress)
        self._begun = now()
        self._due = self._begun + (_WAIT if progress is None else 0.0)
        self._width = 0  # of the line that is drawn

    def tick(self) -> None:
        """Draw the line if it is time."""
        if self._is_on and (now := self._now()) >= self._due:
            self._due = now + _EACH
            self._draw(now)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._width:
            self._draw(self._now(), end="\n")

    def _draw(self, now: float, end: str = "") -> None:
        done, said = self._state(now)
        marks = "#" * (_CELLS * done // max(1, self._total))
        took = f"{clock(now - self._begun)} taken" if done == self._total else ""
        most = max(1, shutil.get_terminal_size().columns - 1)
        words = ", ".join(filter(None, (f"{done:,} of {self._total:,}", said, took)))
        line = f"[{marks:.<{_CELLS}}] {words}"[:most]
        with suppress(OSError, ValueError):  # stderr is closed; the results matter more
            print(f"\r{line:<{min(self._width, most)}}", end=end, file=sys.stderr, flush=True)
        self._width = len(line)
