"""Ctrl-C: the first one ends the run in order; a second one, or one before the run, ends the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gencli.cli.terminal.render import say_interrupted

__all__ = ["Interrupts", "interrupts"]


class Interrupts:
    """A signal handler. `on_first` ends the run in order; while it is None a signal ends the process."""

    def __init__(self) -> None:
        self.on_first: Callable[[], None] | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handle one signal."""
        if self.on_first is None:
            # Imports and model loaders could swallow a KeyboardInterrupt.
            say_interrupted()
            os._exit(130)
        self.on_first()
        self.on_first = None


@contextmanager
def interrupts(*signals: signal.Signals) -> Iterator[Interrupts]:
    """Handle these signals (by default SIGINT) inside the block, and restore the old handlers after it."""
    handler = Interrupts()
    before = {each: signal.signal(each, handler) for each in signals or (signal.SIGINT,)}
    try:
        yield handler
    finally:
        for each, old in before.items():
            signal.signal(each, old)
