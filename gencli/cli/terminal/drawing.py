"""Lines below a terminal's text that are redrawn in place."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.segment import Segment, SegmentLines

from gencli.cli.terminal.render import draw
from gencli.text.escapes import escape_controls

__all__ = ["Drawing"]

_SECONDS = 0.1  # minimum time between two drawings
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_CLEAR = "\x1b[2K"  # clears the line of the cursor
# Clears everything below the cursor's line. From that line itself, some terminals move a screen into their
# history.
_CLEAR_REST = "\r\n\x1b[J"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class Drawing:
    """Lines that are redrawn in place, below the text of a terminal.

    Between two drawings the hidden cursor stays at the first line. Terminals that rewrap lines when resized
    keep it there, so erasing everything below it removes the lines however they were wrapped.
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
        """Columns and lines available for a drawing; the last line of the terminal stays free."""
        return self._console.width, max(1, self._console.height - 1)

    @property
    def is_due(self) -> bool:
        """Whether the last drawing or erasing is at least 0.1 seconds ago."""
        return time.monotonic() - self._last >= _SECONDS

    def show(self, *parts: RenderableType) -> None:
        """Replace the drawn lines by these."""
        options = self._console.options.update(no_wrap=True, overflow="crop")
        drawn = self._console.render_lines(Group(*parts), options, pad=False)
        with self._console.capture() as captured:
            self._console.print(SegmentLines(map(_escaped, drawn), new_lines=True), crop=True)
        lines = captured.get().splitlines()[: self.size[1]]
        text = "\r\n".join(_CLEAR + line for line in lines)
        # Without wrapping, because the terminal may have become narrower since it was measured.
        self._write(f"{_HIDE}\r{_NO_WRAP}{text}{_WRAP}{_CLEAR_REST}\x1b[{len(lines)}A")
        self._is_shown, self._last = True, time.monotonic()

    def erase(self) -> None:
        """Erase the lines, so that text can be written in their place."""
        if self._is_shown:
            self._write(f"\r{_CLEAR}{_CLEAR_REST}\x1b[A{_SHOW}")
            self._is_shown, self._last = False, time.monotonic()

    def _write(self, text: str) -> None:
        draw(self._stream, text)


def _escaped(line: Iterable[Segment]) -> list[Segment]:
    """Return the line with the control characters of its text escaped; styles are kept."""
    return [Segment(escape_controls(text), style, control) for text, style, control in line]
