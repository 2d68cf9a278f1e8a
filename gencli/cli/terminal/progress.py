"""Bars with rate and time left, on a terminal."""

from __future__ import annotations

import time

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
from gencli.cli.terminal.rate import Meter, ProgressRate
from gencli.core.events import Event, Reading
from gencli.results.prompt_progress import PromptProgress
from gencli.units import clock

__all__ = ["LoadBar", "ReadingLine", "RunBar", "run_bar", "share_bar"]


class LoadBar:
    """Bytes of a model: to be called with those that are done, and with all."""

    def __init__(self, name: str, drawing: Drawing, verb: str = "Loading") -> None:
        self._drawing, self._is_first = drawing, True
        self._bar = Progress(
            TextColumn(verb + " {task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task(name, total=None)
        drawing.show(f"{verb} {name} ...")  # the files are looked through before the first byte

    def __call__(self, done: int, total: int) -> None:
        """Draw the bar anew, not too often."""
        if self._is_first:  # what was there before is no part of the rate
            self._bar.reset(self._task, completed=done, total=total)
            self._is_first = False
        self._bar.update(self._task, completed=done, total=total)
        if self._drawing.is_due or done == total:
            self._drawing.show(self._bar.get_renderable())


class RunBar:
    """Samples that have ended, beside a result that does not show how far it is."""

    def __init__(self, meter: Meter, drawing: Drawing) -> None:
        self._meter, self._drawing = meter, drawing
        self._draw()

    def add(self, event: Event) -> None:
        """Count the event; draw the bar anew, not too often."""
        self._meter.add(event, time.monotonic())
        is_first = isinstance(event, Reading) and not event.done
        if is_first or self._drawing.is_due:
            self._draw()

    def close(self) -> None:
        """Take the bar away."""
        self._drawing.erase()

    def _draw(self) -> None:
        self._drawing.show(run_bar(self._meter.pace(time.monotonic())))


class ReadingLine:
    """A line that says how much of a long prompt is read, until there is text."""

    def __init__(self, drawing: Drawing) -> None:
        self._drawing, self._prompts = drawing, PromptProgress()

    def add(self, event: Event) -> None:
        """Draw the line anew, or take it away."""
        self._prompts.add(event)
        if text := self._prompts.text:
            self._drawing.show(f"{text[0].upper()}{text[1:]}")
        else:
            self._drawing.erase()

    def close(self) -> None:
        """Take the line away."""
        self._drawing.erase()


def run_bar(pace: ProgressRate) -> RenderableType:
    """The line that shows a run's pace."""
    rate = [] if pace.speed is None else [f"{pace.speed:.1f} tok/s"]
    rate += [] if pace.left is None else [f"{clock(pace.left)} left"]
    rate += [pace.reading] if pace.reading else []
    bar = Progress(_text(f"{pace.done} of {pace.total} done"), BarColumn(), _text(", ".join(rate)))
    bar.add_task("", total=pace.total, completed=pace.done)
    return bar.get_renderable()


def share_bar(share: float, text: str) -> RenderableType:
    """A bar of the part that is done, and what there is to say of it."""
    bar = Progress(BarColumn(bar_width=20), _text(text))
    bar.add_task("", total=1000, completed=round(1000 * share))
    return bar.get_renderable()


def _text(text: str) -> TextColumn:
    """A cell that is not shortened before the bar is."""
    return TextColumn(text, markup=False, table_column=Column(min_width=len(text), no_wrap=True))
