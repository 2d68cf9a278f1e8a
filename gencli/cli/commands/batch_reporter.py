"""Messages of a batch on stderr: lines and notices; a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from gencli.batch.batch_records import Progress as BatchProgress
from gencli.batch.batch_records import RowEngine
from gencli.cli.terminal.drawing import Drawing
from gencli.cli.terminal.interrupts import Interrupts
from gencli.cli.terminal.progress import share_bar
from gencli.cli.terminal.render import Sink, say
from gencli.cli.terminal.stderr import Stderr
from gencli.config.options.flags import with_flags

__all__ = ["TerminalReporter"]

_SECONDS = 5.0  # seconds between two lines


class TerminalReporter(Stderr):
    """The reporter of a batch on the command line. `sink` erases the bar before results go to stdout."""

    def __init__(self, sink: Sink, handler: Interrupts, *, is_quiet: bool) -> None:
        super().__init__(is_quiet=is_quiet)
        self._sink, self._handler = sink, handler

    @contextmanager
    def watch(self, progress: BatchProgress, engine: RowEngine) -> Iterator[Callable[[], None]]:
        """Show notices of the engine, each once, and the progress."""
        with ExitStack() as stack:
            drawing = stack.enter_context(Drawing(sys.stderr)) if self.has_drawing else None
            if drawing is not None:
                self._sink.before_write = drawing.erase  # stdout and stderr may be one terminal
            yield _Display(progress, engine, self, drawing).update

    def on_interrupt(self, stop: Callable[[], None] | None) -> None:
        """Call `stop` at the first Ctrl-C or SIGTERM."""
        self._handler.on_first = stop

    def say_always(self, text: str) -> None:
        """Write a line, even with --quiet."""
        say(with_flags(text))


class _Display:
    """Shows the progress on a drawing, or as lines."""

    def __init__(
        self, progress: BatchProgress, engine: RowEngine, stderr: Stderr, drawing: Drawing | None
    ) -> None:
        self._progress, self._engine, self._stderr, self._drawing = progress, engine, stderr, drawing
        self._num_notices, self._last = 0, time.monotonic()

    def update(self) -> None:
        """Show new notices, and the progress if enough time has passed."""
        now = time.monotonic()
        for text in self._engine.notices[self._num_notices :]:
            if self._drawing is not None:
                self._drawing.erase()
            self._stderr.notice(text)
        self._num_notices = len(self._engine.notices)
        if self._drawing is not None and self._drawing.is_due:
            self._drawing.show(share_bar(self._progress.share, self._line(now)))
        elif self._drawing is None and now - self._last >= _SECONDS:
            self._last = now
            self._stderr.say(self._line(now))

    def _line(self, now: float) -> str:
        return ", ".join(filter(None, [self._progress.line(now), self._engine.reading]))
