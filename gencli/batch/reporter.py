"""Messages of a running batch: those of any run, its progress, and signals that end it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from gencli.batch.engines.base import RowEngine
from gencli.batch.progress import Progress
from gencli.runtime.reporter import Reporter

__all__ = ["BatchReporter"]


class BatchReporter(Reporter, Protocol):
    """Interface for the messages of a batch, and for signals that end it."""

    def watch(self, progress: Progress, engine: RowEngine) -> AbstractContextManager[Callable[[], None]]:
        """Return a context in which rows run; its value is called after each step to show the progress."""
        ...

    def on_interrupt(self, stop: Callable[[], None] | None) -> None:
        """Call `stop` at the next termination signal; with None the signal ends the process."""
        ...

    def say_always(self, text: str) -> None:
        """Report a line even in a quiet run."""
        ...
