"""A line that moves on a terminal while a long step runs that reports nothing."""

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
    """A line such as "Starting ...", drawn by a thread from half a second on, until it is closed.

    Nothing else may be written to the terminal meanwhile.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._text, self._start = stream, "", 0.0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def show(self, text: str) -> None:
        """Show this text from now on."""
        self._text = text
        if self._thread is None:
            self._start = time.monotonic()
            self._end.clear()
            self._thread = threading.Thread(target=self._draw_all, name="waiting", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Erase the line and stop the thread."""
        if self._thread is not None:
            self._end.set()
            self._thread.join()
            self._thread = None

    def _draw_all(self) -> None:
        pause, count = _DELAY, 0
        while not self._end.wait(pause):
            draw(self._stream, f"{_CLEAR}{self._line(count)}\r")
            pause, count = _PAUSE, count + 1
        if count:
            draw(self._stream, _CLEAR)

    def _line(self, count: int) -> str:
        """Return the text with one to three points and the time, cut to the width of the terminal."""
        points = "." * (count % 3 + 1)
        line = escape_controls(f"{self._text} {points:3} {clock(time.monotonic() - self._start)}")
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return line[: columns - 1] if columns else line  # 0 columns are an unknown number
