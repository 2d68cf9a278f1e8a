"""Messages of a run on stderr: lines, notices, and the progress of loading a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gencli.cli.terminal.render import has_control, is_terminal, say, say_notice
from gencli.cli.terminal.waiting import Waiting
from gencli.config.options.flags import with_flags

__all__ = ["Stderr"]

_LARGE = 256 * 10**6  # bytes; without a terminal a line announces larger weights


class Stderr:
    """The reporter of a run on the command line; with `is_quiet` it writes nothing."""

    def __init__(self, *, is_quiet: bool) -> None:
        self.is_quiet = is_quiet

    @property
    def has_drawing(self) -> bool:
        """Whether to draw progress: stderr is a terminal that can redraw lines, and --quiet is not given."""
        return not self.is_quiet and has_control(sys.stderr)

    @property
    def has_reader(self) -> bool:
        """Whether a person reads the messages: stderr is a terminal, and --quiet is not given."""
        return not self.is_quiet and is_terminal(sys.stderr)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Show on a terminal, after a delay, that libraries are imported in the block."""
        with Waiting(sys.stderr) as waiting:
            if self.has_drawing:
                waiting.show("Starting")
            yield

    @contextmanager
    def loading(self, name: str, verb: str = "Loading") -> Iterator[Callable[[int, int], None]]:
        """Show how much of a model is loaded or hashed: a bar on a terminal, else a line for large models.

        Yields a function to call with the bytes done and the total.
        """
        if self.has_drawing:
            from gencli.cli.terminal.drawing import Drawing  # imports rich
            from gencli.cli.terminal.progress import LoadBar

            with Drawing(sys.stderr) as drawing, Waiting(sys.stderr) as waiting:
                waiting.show(f"{verb} {name}")  # files are examined before the first byte
                yield LoadBar(name, drawing, verb, waiting.close)
            return

        def on_bytes(done: int, total: int) -> None:
            if done == 0 and total >= _LARGE:
                from rich.filesize import decimal

                self.say(f"{verb} {name}, {decimal(total)} ...")

        yield on_bytes

    def say(self, text: str) -> None:
        """Write a line of the library."""
        if not self.is_quiet:
            say(with_flags(text))

    def notice(self, text: str) -> None:
        """Write a notice of the library."""
        if not self.is_quiet:
            say_notice(text)
