"""Lines at the end of a terminal that the next ones replace."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.segment import Segment, SegmentLines

from gencli.cli.terminal.render import draw
from gencli.text.escapes import escape_controls

__all__ = ["Drawing"]

_SECONDS = 0.1  # between two drawings
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_CLEAR = "\x1b[2K"  # the line of the cursor
# All below that line. From the line itself some terminals would keep a whole screen in their history.
_CLEAR_REST = "\r\n\x1b[J"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class Drawing:
    """What moves on a terminal, below all that stays.

    Between two drawings the cursor waits, hidden, where they begin. Terminals that fold lines when they are
    made narrower keep it there, so what is to be erased is always all below it, however it was folded.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._is_shown, self._last = False, 0.0

    def __enter__(self) -> Drawing:
        return self

    def __exit__(self, *exception: object) -> None:
        self.erase()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines that there is room for; the last line of the terminal is left free."""
        return self._console.width, max(1, self._console.height - 1)

    @property
    def is_due(self) -> bool:
        """Whether the last drawing, or its end, is long enough ago for another."""
        return time.monotonic() - self._last >= _SECONDS

    def show(self, *parts: RenderableType) -> None:
        """Draw these lines in the place of those that are there."""
        options = self._console.options.update(no_wrap=True, overflow="crop")
        drawn = self._console.render_lines(Group(*parts), options, pad=False)
        with self._console.capture() as captured:
            self._console.print(SegmentLines(map(_harmless, drawn), new_lines=True), crop=True)
        lines = captured.get().splitlines()[: self.size[1]]
        text = "\r\n".join(_CLEAR + line for line in lines)
        # Not wrapped, for the terminal may have become narrower since it was measured.
        self._write(f"{_HIDE}\r{_NO_WRAP}{text}{_WRAP}{_CLEAR_REST}\x1b[{len(lines)}A")
        self._is_shown, self._last = True, time.monotonic()

    def erase(self) -> None:
        """Take the lines away, so that text can follow in their place."""
        if self._is_shown:
            self._write(f"\r{_CLEAR}{_CLEAR_REST}\x1b[A{_SHOW}")
            self._is_shown, self._last = False, time.monotonic()

    def _write(self, text: str) -> None:
        draw(self._stream, text)


def _harmless(line: Iterable[Segment]) -> list[Segment]:
    """The line with the control characters of its text escaped; its styles stay."""
    return [Segment(escape_controls(text), style, control) for text, style, control in line]
