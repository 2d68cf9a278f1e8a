"""Ctrl-C: the first ends the run in order, a second one, or one before the run, ends the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gencli.cli.terminal.render import say_interrupted

__all__ = ["Interrupts", "interrupts"]


class Interrupts:
    """The handler of signals. `on_first` is what ends the run in order; until it is set nothing is open."""

    def __init__(self) -> None:
        self.on_first: Callable[[], None] | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handle one signal."""
        if self.on_first is None:
            # A KeyboardInterrupt could be swallowed by the imports and loaders it passes through.
            say_interrupted()
            os._exit(130)
        self.on_first()
        self.on_first = None


@contextmanager
def interrupts(*signals: signal.Signals) -> Iterator[Interrupts]:
    """Handle these signals inside the block; Ctrl-C if none is named."""
    handler = Interrupts()
    before = {each: signal.signal(each, handler) for each in signals or (signal.SIGINT,)}
    try:
        yield handler
    finally:
        for each, old in before.items():
            signal.signal(each, old)
