"""Progress bars with rate and remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column

from gencli.cli.terminal.drawing import Drawing
from gencli.cli.terminal.waiting import Waiting
from gencli.core.events import Event, Reading
from gencli.results.run_results import Meter, ProgressRate, PromptProgress
from gencli.units import clock

__all__ = ["LoadBar", "ReadingLine", "RunBar", "run_bar", "share_bar"]


class LoadBar:
    """A bar of the bytes of a model, called with the bytes done and the total.

    `on_first` is called before the first drawing.
    """

    def __init__(
        self,
        name: str,
        drawing: Drawing,
        verb: str = "Loading",
        on_first: Callable[[], None] = lambda: None,
    ) -> None:
        self._drawing, self._is_first, self._on_first = drawing, True, on_first
        self._bar = Progress(
            TextColumn(verb + " {task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
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
    """A bar of ended samples, for results that do not show progress themselves."""

    def __init__(self, meter: Meter, drawing: Drawing) -> None:
        self._meter, self._drawing = meter, drawing
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
    """Return a column that keeps its width; a narrow terminal shortens the bar instead."""
    return TextColumn(text, markup=False, table_column=Column(min_width=len(text), no_wrap=True))
