"""Several texts on a terminal: a line for each that runs, finished ones in full above, in their order."""

from __future__ import annotations

import time

from rich.text import Text

from gencli.cli.drawing import Drawing
from gencli.cli.pace import Meter
from gencli.cli.progress import run_bar
from gencli.cli.render import Sink
from gencli.cli.results import Results, Row
from gencli.cli.writers import BlockWriter
from gencli.events import Error, Event, Finish

__all__ = ["LiveWriter"]


class LiveWriter:
    """Shows the newest words of every text that is not written yet, and the texts as blocks in their order.

    A text that is complete before its turn keeps its line until then. Lines that there is no room for, and
    texts that have not begun, are counted. A meter adds a line with the pace of the run.
    """

    def __init__(self, sink: Sink, results: Results, drawing: Drawing, meter: Meter | None) -> None:
        self._blocks = BlockWriter(sink, results, is_streaming=False)
        self._drawing, self._meter = drawing, meter

    def add(self, event: Event) -> None:
        """Draw the lines anew, not too often; write the texts whose turn has come."""
        if self._meter:
            self._meter.add(event, time.monotonic())
        if isinstance(event, Finish | Error):
            self._blocks.add(event)
        elif not self._drawing.is_due:
            return
        bar = [run_bar(self._meter.pace(time.monotonic()))] if self._meter else []
        self._drawing.show(*self._lines(self._drawing.size[1] - len(bar)), *bar)

    def close(self) -> None:
        """Take the lines away; the texts are written by then."""
        self._drawing.erase()

    def _lines(self, room: int) -> list[Text]:
        """A line for each text that has begun, as many as there is room for, and how many more there are."""
        begun = [(row, sample) for row, sample in self._blocks.waiting if row.texts[sample]]
        rest = len(self._blocks.waiting) - len(begun)
        if len(begun) + (rest > 0) > room:
            begun.sort(key=lambda entry: entry[0].outcomes[entry[1]] is not None)  # those that run first
            rest = len(self._blocks.waiting) - max(0, room - 1)
        shown = begun[: len(self._blocks.waiting) - rest]
        more = [Text(f"{rest} more")] if rest else []
        return [*(self._line(row, sample) for row, sample in shown), *more][:room]

    def _line(self, row: Row, sample: int) -> Text:
        width, _ = self._drawing.size
        number = row.id + (f".{sample + 1}" if len(row.texts) > 1 else "")
        words = " ".join(row.texts[sample][-2 * width :].split())
        tail = "".join(char for char in words if char.isprintable())
        return Text(f"[{number}] {tail[-max(1, width - len(number) - 4) :]}")
