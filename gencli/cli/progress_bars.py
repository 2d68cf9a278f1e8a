"""Lines below a terminal's text that are redrawn in place: progress bars of loading, reading, runs and
batches, with rate and remaining time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, TextIO

from rich import progress
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.segment import Segment, SegmentLines
from rich.table import Column

from gencli.cli.render import Sink, draw
from gencli.core.events import Event, Reading
from gencli.helpers import clock
from gencli.results.run_results import Meter, ProgressRate, PromptProgress
from gencli.text.escapes import escape_controls

if TYPE_CHECKING:
    from gencli.cli.stderr import Waiting


class LoadBar:
    """A bar of the bytes of a model, called with the bytes done and the total.

    `on_first` is called before the first drawing.
    """

    def __init__(
        self, name: str, drawing: Drawing, verb: str = "Loading", on_first: Callable[[], None] = lambda: None
    ) -> None:
        self._drawing, self._is_first, self._on_first = drawing, True, on_first
        self._bar = Progress(
            TextColumn(verb + " {task.description}", markup=False),
            BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
        )
        self._task = self._bar.add_task(name, total=None)

    def __call__(self, done: int, total: int) -> None:
        """Redraw the bar if a drawing is due."""
        if self._is_first:  # bytes present at the start do not count for the rate
            self._bar.reset(self._task, completed=done, total=total)
            self._is_first = False
            self._on_first()
        self._bar.update(self._task, completed=done, total=total)
        if self._drawing.is_due or done == total:
            self._drawing.show(self._bar.get_renderable())


class RunBar:
    """A bar of ended samples on stderr, for results that do not show progress; erased before the result."""

    def __init__(self, sink: Sink, texts: int, max_tokens: int, stack: ExitStack) -> None:
        self._meter, self._drawing = Meter(texts, max_tokens), stack.enter_context(Drawing(sys.stderr))
        sink.before_write = self._drawing.erase  # stdout and stderr may be the same terminal
        self._draw()

    def add(self, event: Event) -> None:
        """Count the event; redraw the bar if a drawing is due."""
        self._meter.add(event, time.monotonic())
        is_first = isinstance(event, Reading) and not event.done
        if is_first or self._drawing.is_due:
            self._draw()

    def close(self) -> None:
        """Erase the bar."""
        self._drawing.erase()

    def _draw(self) -> None:
        self._drawing.show(run_bar(self._meter.pace(time.monotonic())))


class ReadingLine:
    """A line with the progress of a long prompt, until the first token."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting, self._prompts = waiting, PromptProgress()

    def add(self, event: Event) -> None:
        """Change the line, or erase it if no prompt is being read."""
        self._prompts.add(event)
        if text := self._prompts.text:
            self._waiting.show(f"{text[0].upper()}{text[1:]}", at_once=True)
        else:
            self._waiting.close()

    def close(self) -> None:
        """Erase the line."""
        self._waiting.close()


def run_bar(pace: ProgressRate) -> RenderableType:
    """Return the bar of a run: samples done, tokens per second, time left, prompts in prefill."""
    rate = [] if pace.speed is None else [f"{pace.speed:.1f} tok/s"]
    rate += [] if pace.left is None else [f"{clock(pace.left)} left"]
    rate += [pace.reading] if pace.reading else []
    bar = Progress(_text(f"{pace.done} of {pace.total} done"), BarColumn(), _text(", ".join(rate)))
    bar.add_task("", total=pace.total, completed=pace.done)
    return bar.get_renderable()


def share_bar(share: float, text: str) -> RenderableType:
    """Return a bar of the fraction done (0 to 1), followed by a text."""
    bar = Progress(BarColumn(bar_width=20), _text(text))
    bar.add_task("", total=1000, completed=round(1000 * share))
    return bar.get_renderable()


def _text(text: str) -> TextColumn:
    # It keeps its width; a narrow terminal shortens the bar instead.
    return TextColumn(text, markup=False, table_column=Column(min_width=len(text), no_wrap=True))


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
            escaped = (
                [Segment(escape_controls(text), style, control) for text, style, control in line]
                for line in drawn
            )
            self._console.print(SegmentLines(escaped, new_lines=True), crop=True)
        lines = captured.get().splitlines()[: self.size[1]]
        text = "\r\n".join(_CLEAR + line for line in lines)
        # Without wrapping, because the terminal may have become narrower since it was measured.
        draw(self._stream, f"{_HIDE}\r{_NO_WRAP}{text}{_WRAP}{_CLEAR_REST}\x1b[{len(lines)}A")
        self._is_shown, self._last = True, time.monotonic()

    def erase(self) -> None:
        """Erase the lines, so that text can be written in their place."""
        if self._is_shown:
            draw(self._stream, f"\r{_CLEAR}{_CLEAR_REST}\x1b[A{_SHOW}")
            self._is_shown, self._last = False, time.monotonic()
