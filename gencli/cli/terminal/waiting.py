"""An animated line on a terminal during a long step without progress reports."""

from __future__ import annotations

import os
import threading
import time
from typing import TextIO

from gencli.cli.terminal.render import draw
from gencli.text.escapes import escape_controls
from gencli.units import clock

__all__ = ["Waiting"]

_DELAY, _PAUSE = 0.5, 0.25  # seconds before the line is drawn, and between two drawings
_CLEAR = "\r\x1b[2K"


class Waiting:
    """A line such as "Starting ...", drawn by a thread after half a second, until it is closed.

    Nothing else may be written to the terminal in the meantime.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._text, self._start = stream, "", 0.0
        self._end, self._lock = threading.Event(), threading.Lock()
        self._num_drawn = 0
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Show this text from now on; `at_once`: without a delay."""
        self._text = text
        if self._thread is None:
            self._start = time.monotonic()
            self._end.clear()
            self._thread = threading.Thread(target=self._draw_all, name="waiting", daemon=True)
            self._thread.start()
        if at_once:
            self._draw()

    def close(self) -> None:
        """Erase the line and stop the thread."""
        if self._thread is not None:
            self._end.set()
            self._thread.join()
            self._thread = None
        if self._num_drawn:
            draw(self._stream, _CLEAR)
            self._num_drawn = 0

    def _draw_all(self) -> None:
        pause = _DELAY
        while not self._end.wait(pause):
            self._draw()
            pause = _PAUSE

    def _draw(self) -> None:
        with self._lock:
            draw(self._stream, f"{_CLEAR}{self._line(self._num_drawn)}\r")
            self._num_drawn += 1

    def _line(self, count: int) -> str:
        """Return the text with one to three dots and the time, cut to the terminal's width."""
        points = "." * (count % 3 + 1)
        line = escape_controls(f"{self._text} {points:3} {clock(time.monotonic() - self._start)}")
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return line[: columns - 1] if columns else line  # 0 columns mean unknown
