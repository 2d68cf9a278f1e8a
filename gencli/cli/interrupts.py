"""Ctrl-C: the first ends the run in order, a second one, or one before the run, ends the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gencli.cli.render import say, tidy

__all__ = ["Interrupts", "interrupts"]


class Interrupts:
    """The handler of SIGINT. `on_first` is what ends the run in order; until it is set nothing is open."""

    def __init__(self) -> None:
        self.on_first: Callable[[], None] | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handle one Ctrl-C."""
        if self.on_first is None:
            # A KeyboardInterrupt could be swallowed by the imports and loaders it passes through.
            tidy()
            say("Interrupted.")
            os._exit(130)
        self.on_first()
        self.on_first = None


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Handle Ctrl-C inside the block."""
    handler = Interrupts()
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield handler
    finally:
        signal.signal(signal.SIGINT, before)
