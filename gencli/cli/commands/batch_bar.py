"""How far a batch is, on stderr: a bar on a terminal, elsewhere a line every few seconds."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

from gencli.batch.engines.base import RowEngine
from gencli.batch.progress import Progress
from gencli.batch.records import Outcome
from gencli.cli.terminal.drawing import Drawing
from gencli.cli.terminal.progress import share_bar
from gencli.cli.terminal.render import Sink, Stderr

__all__ = ["BatchBar"]

_SECONDS = 5.0  # between two lines


class BatchBar:
    """Counts what the loop does and shows it; what the engine has to say is said once."""

    def __init__(
        self, progress: Progress, engine: RowEngine, voice: Stderr, sink: Sink, stack: ExitStack
    ) -> None:
        self._progress, self._engine, self._voice = progress, engine, voice
        self._num_said, self._last = 0, time.monotonic()
        self._drawing = stack.enter_context(Drawing(sys.stderr)) if voice.has_drawing else None
        if self._drawing is not None:
            sink.before_write = self._drawing.erase  # the two may be one terminal

    def add_tokens(self, count: int) -> None:
        """Count tokens that were made; show how far the batch is, not too often."""
        now = time.monotonic()
        self._progress.add_tokens(count, now, self._engine.occupancy)
        for text in self._engine.notices[self._num_said :]:
            self.close()
            self._voice.notice(text)
        self._num_said = len(self._engine.notices)
        if self._drawing is not None and self._drawing.is_due:
            self._drawing.show(share_bar(self._progress.share, self._line(now)))
        elif self._drawing is None and now - self._last >= _SECONDS:
            self._last = now
            self._voice.say(self._line(now))

    def add_outcome(self, outcome: Outcome) -> None:
        """Count a row."""
        self._progress.add_outcome(outcome)

    def close(self) -> None:
        """Take the bar away."""
        if self._drawing is not None:
            self._drawing.erase()

    def _line(self, now: float) -> str:
        return ", ".join(filter(None, [self._progress.line(now), self._engine.reading]))
