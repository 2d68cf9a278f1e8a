"""Several texts on a terminal: finished texts in order, and below them a line for each running one."""

from __future__ import annotations

import time

from rich.text import Text

from gencli.cli.progress_bars import Drawing, run_bar
from gencli.cli.render import Sink
from gencli.cli.result_writers import BlockWriter
from gencli.cli.token_colors import Pen
from gencli.core.events import Error, Event, Finish
from gencli.results.run_results import Meter, Results, Row
from gencli.text.escapes import escape_controls


class LiveWriter:
    """Writes finished texts as blocks in order, and draws the newest words of every text not written yet.

    A text that finishes out of order keeps its line until it can be written. A last line counts the texts
    without a line, for lack of space or because they have not begun. A meter adds a line with the rate.
    """

    def __init__(
        self, sink: Sink, results: Results, drawing: Drawing, meter: Meter | None, pen: Pen | None = None
    ) -> None:
        self._results, self._blocks = results, BlockWriter(sink, results, is_streaming=False, pen=pen)
        self._drawing, self._meter = drawing, meter
        self._held: dict[int, tuple[Row, int]] = {}  # finished out of order, by index

    def add(self, event: Event) -> None:
        """Redraw the lines if a drawing is due; write texts that are finished and next in order."""
        if self._meter:
            self._meter.add(event, time.monotonic())
        if isinstance(event, Finish | Error):
            self._end(self._results.row(event.request), event)
        elif not self._drawing.is_due:
            return
        bar = [run_bar(self._meter.pace(time.monotonic()))] if self._meter else []
        self._drawing.show(*self._lines(self._drawing.size[1] - len(bar)), *bar)

    def close(self) -> None:
        """Erase the lines; all texts have been written."""
        self._drawing.erase()

    def _end(self, row: Row, event: Finish | Error) -> None:
        """Write the finished texts that are next in order, and keep this one until then."""
        self._held[_place(row, event.sample)] = row, event.sample
        self._blocks.add(event)
        self._held = {at: held for at, held in self._held.items() if at >= self._blocks.num_written}

    def _lines(self, room: int) -> list[Text]:
        """Return a line for each text that has begun, at most `room`, and the number of the others."""
        running = {
            _place(row, sample): (row, sample)
            for row in self._results.rows
            for sample in row.running
            if row.texts[sample]
        }
        begun = sorted({**running, **self._held})
        missing = sum(len(row.texts) for row in self._results.rows) - self._blocks.num_written
        if missing > room or missing > len(begun):
            # Running texts have precedence over finished ones.
            begun = sorted(begun, key=lambda at: at in self._held)[: max(0, room - 1)]
        texts = [self._line(*(running.get(at) or self._held[at])) for at in begun]
        rest = missing - len(begun)
        return [*texts, *([Text(f"{rest} more")] if rest else [])][:room]

    def _line(self, row: Row, sample: int) -> Text:
        width, _ = self._drawing.size
        number = row.id + (f".{sample + 1}" if len(row.texts) > 1 else "")
        tail = escape_controls(" ".join(row.texts[sample][-2 * width :].split()))
        return Text(f"[{number}] {tail[-max(1, width - len(number) - 4) :]}")


def _place(row: Row, sample: int) -> int:
    """Return the index of a sample among all samples of the run."""
    return (int(row.id) - 1) * len(row.texts) + sample
