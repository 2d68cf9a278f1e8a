"""What a command tells while it runs: lines and notices on stderr, an animated line during long steps, the
ends by Ctrl-C, and the browser that opens an address.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from gencli.cli.render import Sink, draw, has_control, is_terminal, say, say_interrupted, say_notice
from gencli.config.option_names import with_flags
from gencli.config.settings import Settings
from gencli.helpers import clock
from gencli.runtime.machine import quiet_libraries, set_wait
from gencli.text.escapes import escape_controls

if TYPE_CHECKING:
    from gencli.batch.batch_records import Progress as BatchProgress
    from gencli.batch.batch_records import RowEngine

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
            from gencli.cli.progress_bars import Drawing, LoadBar

            with Drawing(sys.stderr) as drawing, Waiting(sys.stderr) as waiting:
                waiting.show(f"{verb} {name}")  # files are examined before the first byte
                yield LoadBar(name, drawing, verb, waiting.close)
            return

        def on_bytes(done: int, total: int) -> None:
            if done == 0 and total >= _LARGE:
                from rich.filesize import decimal

                self.say(f"{verb} {name}, {decimal(total)} ...")

        yield on_bytes

    def say(self, *lines: str) -> None:
        """Write lines of the library."""
        for line in () if self.is_quiet else lines:
            say(with_flags(line))

    def notice(self, *texts: str) -> None:
        """Write notices of the library."""
        if not self.is_quiet:
            say_notice(*texts)


_LINE_SECONDS = 5.0  # seconds between two lines


class TerminalReporter(Stderr):
    """The reporter of a batch on the command line. `sink` erases the bar before results go to stdout."""

    def __init__(self, sink: Sink, handler: Interrupts, *, is_quiet: bool) -> None:
        super().__init__(is_quiet=is_quiet)
        self._sink, self._handler = sink, handler

    @contextmanager
    def watch(self, progress: BatchProgress, engine: RowEngine) -> Iterator[Callable[[], None]]:
        """Show notices of the engine, each once, and the progress: a bar, or lines without a terminal."""
        from gencli.cli.progress_bars import Drawing, share_bar

        num_notices, last = 0, time.monotonic()
        with ExitStack() as stack:
            drawing = stack.enter_context(Drawing(sys.stderr)) if self.has_drawing else None
            if drawing is not None:
                self._sink.before_write = drawing.erase  # stdout and stderr may be one terminal

            def update() -> None:
                nonlocal num_notices, last
                now, texts = time.monotonic(), engine.notices[num_notices:]
                if texts and drawing is not None:
                    drawing.erase()
                self.notice(*texts)
                num_notices += len(texts)
                if not (drawing.is_due if drawing is not None else now - last >= _LINE_SECONDS):
                    return
                line = ", ".join(filter(None, [progress.line(now), engine.reading]))
                if drawing is not None:
                    drawing.show(share_bar(progress.share, line))
                else:
                    last = now
                    self.say(line)

            yield update

    def on_interrupt(self, stop: Callable[[], None] | None) -> None:
        """Call `stop` at the first Ctrl-C or SIGTERM."""
        self._handler.on_first = stop

    def say_always(self, text: str) -> None:
        """Write a line, even with --quiet."""
        say(with_flags(text))


_DELAY, _PAUSE = 0.5, 0.25  # seconds before the line is drawn, and between two drawings
_CLEAR = "\r\x1b[2K"


class Waiting:
    """A line such as "Starting ...", drawn by a thread after half a second, until it is closed.

    Nothing else may be written to the terminal in the meantime.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._text, self._start = stream, "", 0.0
        self._end, self._lock = threading.Event(), threading.Lock()
        self._num_drawn = 0
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Show this text from now on; `at_once`: without a delay."""
        self._text = text
        if self._thread is None:
            self._start = time.monotonic()
            self._end.clear()

            def draw_all() -> None:
                pause = _DELAY
                while not self._end.wait(pause):
                    self._draw()
                    pause = _PAUSE

            self._thread = threading.Thread(target=draw_all, name="waiting", daemon=True)
            self._thread.start()
        if at_once:
            self._draw()

    def close(self) -> None:
        """Erase the line and stop the thread."""
        if self._thread is not None:
            self._end.set()
            self._thread.join()
            self._thread = None
        if self._num_drawn:
            draw(self._stream, _CLEAR)
            self._num_drawn = 0

    def _draw(self) -> None:
        with self._lock:
            points = "." * (self._num_drawn % 3 + 1)
            line = escape_controls(f"{self._text} {points:3} {clock(time.monotonic() - self._start)}")
            try:
                columns = os.get_terminal_size(self._stream.fileno()).columns
            except (OSError, ValueError):
                columns = 0
            line = line[: columns - 1] if columns else line  # 0 columns mean unknown
            draw(self._stream, f"{_CLEAR}{line}\r")
            self._num_drawn += 1


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


@contextmanager
def running(settings: Settings) -> Iterator[Interrupts]:
    """Let Ctrl-C interrupt the block, the import of torch included, and silence the warnings of libraries."""
    set_wait(settings["wait"], os.environ)  # before torch is imported
    with interrupts() as handler, quiet_libraries(is_on=not settings["debug"]):
        yield handler


def open_browser(address: str) -> bool:
    """Open an address; return whether a browser opened it. May block until that browser ends.

    A browser in the terminal is used only if the variable BROWSER names it, because it would take over the
    terminal.
    """
    import webbrowser

    try:
        browser = webbrowser.get()
        if type(browser) is webbrowser.GenericBrowser and "BROWSER" not in os.environ:
            return False
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False
