"""Several texts on a terminal: a line for each that runs, finished ones in full above."""

from __future__ import annotations

import time

from rich.text import Text

from gencli.cli.drawing import Drawing
from gencli.cli.pace import Meter
from gencli.cli.progress import run_bar
from gencli.cli.render import Sink
from gencli.cli.results import Results
from gencli.cli.writers import block
from gencli.events import Event, Token
from gencli.text.escapes import escape_controls

__all__ = ["LiveWriter"]


class LiveWriter:
    """Shows the newest words of every running text, and each text as a block when it is complete.

    A meter adds a line with the pace of the run.
    """

    def __init__(self, sink: Sink, results: Results, drawing: Drawing, meter: Meter | None) -> None:
        self._sink, self._results = sink, results
        self._drawing, self._meter = drawing, meter

    def add(self, event: Event) -> None:
        """Draw the lines anew, not too often; write a text that is complete."""
        if self._meter:
            self._meter.add(event, time.monotonic())
        if not isinstance(event, Token):
            self._sink.write(block(self._results.row(event.request), event.sample))
        elif not self._drawing.is_due:
            return
        bar = [run_bar(self._meter.pace(time.monotonic()))] if self._meter else []
        self._drawing.show(*self._rows()[: self._drawing.size[1] - len(bar)], *bar)

    def close(self) -> None:
        """Take the lines away; the texts are written by then."""
        self._drawing.erase()

    def _rows(self) -> list[Text]:
        width, _ = self._drawing.size
        lines = []
        for row in self._results.rows:
            for sample in sorted(row.running):
                if row.texts[sample]:
                    number = row.id + (f".{sample + 1}" if len(row.texts) > 1 else "")
                    tail = escape_controls(" ".join(row.texts[sample][-2 * width :].split()))
                    lines.append(Text(f"[{number}] {tail[-max(1, width - len(number) - 4) :]}"))
        return lines
