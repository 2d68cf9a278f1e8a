"""The streams. Results go to stdout or a file, all else to stderr; nothing else in gencli prints.

On a terminal each stream is a Terminal, which escapes the control characters of all text written to it, so
that prompts, models and files cannot control the terminal. Files and pipes get every byte as it is.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TextIO, cast

from gencli.cli.flags import with_flags
from gencli.errors import GenerationError, UsageError
from gencli.text.escapes import escape_controls

__all__ = [
    "OutputClosed",
    "Sink",
    "Terminal",
    "confirm",
    "draw",
    "has_control",
    "is_terminal",
    "prepare",
    "prompt",
    "say",
    "say_error",
    "say_interrupted",
    "say_notice",
    "silence",
    "tidy",
]


class OutputClosed(Exception):
    """Whoever read the result has gone (`| head`); there is nobody left to write for."""


class Terminal:
    """A text stream to a terminal: `write` escapes control characters, `draw` sends gencli's own codes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = ""  # the character written before, which decides on a joiner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text of any origin; the number of characters that were given."""
        self._stream.write(escape_controls(text, before=self._last))
        self._last = text[-1:] or self._last
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def draw(self, codes: str) -> None:
        """Write text with control codes as it is. Foreign text in it has to be escaped already."""
        self._stream.write(codes)


def _on_terminal(stream: TextIO) -> TextIO:
    """The stream, as a Terminal if it is one."""
    is_plain = isinstance(stream, Terminal) or not stream.isatty()
    return stream if is_plain else cast(TextIO, Terminal(stream))


def prepare() -> None:
    """Escape control characters where a stream is a terminal, and characters that its encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            continue
        if stream.errors == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, _on_terminal(stream))


def draw(stream: TextIO, codes: str) -> None:
    """Write gencli's own control codes to a stream, and flush it."""
    stream.draw(codes) if isinstance(stream, Terminal) else stream.write(codes)
    stream.flush()


def silence() -> None:
    """Nothing more is written to stdout or stderr by this process."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for handle in (1, 2):
        os.dup2(nowhere, handle)
    os.close(nowhere)


def say(text: str) -> None:
    """Write a line to stderr, if there is one."""
    with suppress(OSError):  # nobody reads it; the result matters more
        if sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)


def say_notice(text: str) -> None:
    """Write a notice of the library to stderr."""
    say(f"Notice: {with_flags(text)}")


def say_error(message: str, hint: str = "") -> None:
    """Write an error of the library to stderr, with its hint if it has one."""
    say(with_flags(f"Error: {message}" + (f"\nHint: {hint}" if hint else "")))


def prompt(text: str) -> None:
    """Ask on stderr for a line, which follows on the same one."""
    with suppress(OSError):
        if sys.stderr is not None:
            print(text, end="", file=sys.stderr, flush=True)


def confirm(question: str) -> bool | None:
    """Ask on stderr for yes or no, no if nothing is said; None where stdin is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        return None
    prompt(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is shown on a terminal."""
    return stream is not None and stream.isatty()


def has_control(stream: TextIO | None) -> bool:
    """Whether colours and cursor movement are welcome: a terminal, and no NO_COLOR."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return is_terminal(stream) and not is_plain


def tidy() -> None:
    """Take away a drawing that is cut short: all below the cursor, which it hides."""
    for stream in (sys.stdout, sys.stderr):
        if has_control(stream):
            draw(stream, "\x1b[?7h\x1b[J\x1b[?25h")


def say_interrupted() -> None:
    """Say that the process was interrupted; on a terminal below the line that shows text or ^C."""
    tidy()
    is_seen = sys.stderr is not None and sys.stderr.isatty()
    say("\nInterrupted." if is_seen else "Interrupted.")


class Sink:
    """Where the result goes: stdout, or a file that is opened at once and emptied at the first write.

    `before_write` makes room for it where something is drawn.
    """

    def __init__(self, path: str | None = None) -> None:
        self.name = path or "stdout"
        self._is_file = path is not None
        self._is_fresh = True
        self.before_write: Callable[[], None] = lambda: None
        self._stream = self._opened(path)

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._is_file:
            self._stream.close()

    @property
    def encoding(self) -> str:
        """The stream's encoding."""
        return self._stream.encoding or "utf-8"

    @property
    def is_file(self) -> bool:
        """Whether the result goes where nobody reads it meanwhile, and not to a terminal or a pipe."""
        with suppress(OSError, ValueError):
            mode = os.fstat(self._stream.fileno()).st_mode
            return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not self._stream.isatty())
        return self._is_file

    @property
    def is_terminal(self) -> bool:
        """Whether the result is shown on a terminal."""
        return not self._is_file and self._stream.isatty()

    @property
    def has_control(self) -> bool:
        """Whether the result is shown on a terminal that can be drawn on."""
        return not self._is_file and has_control(self._stream)

    def write(self, text: str) -> None:
        """Write and flush. Raises OutputClosed for a closed pipe."""
        self.before_write()
        try:
            if self._is_file and self._is_fresh and self._stream.seekable():
                self._stream.truncate(0)
            self._is_fresh = False
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self._detach()
            raise OutputClosed from None
        except OSError as error:
            self._detach()
            raise GenerationError(f"Cannot write to {self.name}: {error.strerror or error}.") from error

    def _detach(self) -> None:
        # What is still in the buffer would raise again when the interpreter flushes it at its end.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def _opened(self, path: str | None) -> TextIO:
        if path is None:
            if sys.stdout is None:
                raise UsageError("stdout is closed.", hint="Use --output FILE.")
            return sys.stdout
        try:
            return _on_terminal(open(path, "a", encoding="utf-8", newline=""))
        except OSError as error:
            raise UsageError(f"--output {path}: cannot be written: {error.strerror}.") from error
