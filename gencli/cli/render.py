"""Output streams and tables: results go to stdout or a file, everything else to stderr.

Nothing else in gencli prints. On a terminal each stream is a Terminal, which escapes control characters, so
that prompts, model output and files cannot control the terminal; files and pipes get every byte unchanged.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, ClassVar, TextIO, cast

from gencli.config.option_names import with_flags
from gencli.errors import GenerationError, UsageError
from gencli.text.escapes import escape_controls

_TAB = 8
_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60"  # Chinese and the like
_PARTS = re.compile(rf"\n|[^\S\n]+|[{_WIDE}]|[^\s{_WIDE}]+")


class WordWrap:
    """Turns the parts of a text into what a terminal is sent.

    The newest word is written at once. If a later part makes it too long for the line, it is erased there and
    written again on the next line. A word longer than a line is left to the terminal.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin an empty line."""
        self._column = 0  # cells of the line that are used
        self._end_word()

    def feed(self, text: str, width: int, codes: tuple[str, str] = ("", "")) -> str:
        """Return what to send for the next part, on lines of `width` cells.

        `codes`: control codes before and after its visible characters.
        """
        sent, (before, after) = list[str](), codes
        for part in _PARTS.findall(text):
            if part == "\n":
                sent.append(part)
                self.restart()
            elif part.isspace():
                self._end_word()
                sent.append(self._space(part, width))
            elif re.match(f"[{_WIDE}]", part):  # breaks anywhere
                self._end_word()
                sent.append(self._added(f"{before}{part}{after}", 2, width))
                self._end_word()
            else:
                sent.append(self._added(f"{before}{part}{after}", cell_width(part), width))
        return "".join(sent)

    def _end_word(self) -> None:
        self._word, self._cells = "", 0  # the unfinished word with its control codes, and its cells

    def _space(self, part: str, width: int) -> str:
        """Return white space as far as the line has room for it."""
        sent = ""
        for char in part:
            cells = _TAB - self._column % _TAB if char == "\t" else cell_width(char)
            if self._column + cells > width:
                break
            self._column += cells
            sent += char
        return sent

    def _added(self, piece: str, cells: int, width: int) -> str:
        if self._column + cells > width and self._column > self._cells and self._cells + cells <= width:
            # From the line's start, because behind the last column a cursor stands on it.
            back = f"\r\x1b[{self._column - self._cells}C\x1b[K" if self._cells else ""
            sent, self._column = f"{back}\n{self._word}{piece}", self._cells
        else:
            sent = piece
        self._column += cells
        self._word, self._cells = self._word + piece, self._cells + cells
        if self._column > width:  # longer than a line
            self._column = (self._column - 1) % width + 1
            self._word, self._cells = "", self._column
        return sent


def cell_width(text: str) -> int:
    """Return the number of terminal cells of a text: two for a wide character, such as Chinese."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


class OutputClosed(Exception):
    """The reader of the result closed the pipe, as `| head` does."""


class Terminal:
    """A text stream to a terminal: `write` escapes control characters, `draw` sends gencli's own codes.

    `is_wrapped`: words move to the next line instead of being broken. `wrap` is shared by the streams of one
    terminal.
    """

    def __init__(self, stream: TextIO, wrap: WordWrap | None = None, *, is_wrapped: bool = False) -> None:
        self._stream, self._wrap = stream, wrap or WordWrap()
        self.is_wrapped = is_wrapped and has_control(stream)
        self._last = ""  # the last character written, which decides whether a joiner is escaped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str, codes: tuple[str, str] = ("", "")) -> int:
        """Write text with its control characters escaped, between gencli's own codes.

        Return the number of characters of `text`.
        """
        shown = escape_controls(text, before=self._last)
        columns = columns_of(self._stream) if self.is_wrapped else 0
        self._stream.write(self._wrap.feed(shown, columns, codes) if columns else shown.join(codes))
        self._last = text[-1:] or self._last
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def end_line(self) -> None:
        """End the current line if it is not empty."""
        if self._last not in ("", "\n"):
            self._stream.write("\n")
            self._stream.flush()
        self.answer()

    def answer(self) -> None:
        """Record that the user ended a question's line by typing an answer."""
        self._last = ""
        self._wrap.restart()

    def draw(self, codes: str) -> None:
        """Write text with control codes unchanged. Foreign text in it has to be escaped already."""
        self._stream.write(codes)


def _on_terminal(stream: TextIO, wrap: WordWrap | None = None, *, is_wrapped: bool = False) -> TextIO:
    is_plain = isinstance(stream, Terminal) or not stream.isatty()
    return stream if is_plain else cast(TextIO, Terminal(stream, wrap, is_wrapped=is_wrapped))


def prepare() -> None:
    """Make stdout and stderr escape control characters on terminals, and unencodable characters.

    Words are wrapped on stderr; the result asks for it (`Sink.wrap_words`), because it may be data.
    """
    wrap = WordWrap()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            continue
        if stream.errors == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, _on_terminal(stream, wrap, is_wrapped=name == "stderr"))


def draw(stream: TextIO, codes: str) -> None:
    """Write gencli's own control codes to a stream, and flush it."""
    stream.draw(codes) if isinstance(stream, Terminal) else stream.write(codes)
    stream.flush()


def silence() -> None:
    """Send stdout and stderr of this process to the null device from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for handle in (1, 2):
        os.dup2(nowhere, handle)
    os.close(nowhere)


def say(text: str) -> None:
    """Write a line to stderr, if there is one. On a terminal it begins on a new line."""
    if is_terminal(sys.stderr):
        for stream in (sys.stdout, sys.stderr):  # both may be the same screen
            if isinstance(stream, Terminal):
                with suppress(OSError):
                    stream.end_line()
    say_part(f"{text}\n")


def say_part(text: str) -> None:
    """Write a part of a line to stderr, if there is one."""
    with suppress(OSError):  # stderr is closed; the result matters more
        if sys.stderr is not None:
            print(text, end="", file=sys.stderr, flush=True)


def say_notice(*texts: str) -> None:
    """Write notices to stderr; option keys in backticks become flags."""
    for text in texts:
        say(f"Notice: {with_flags(text)}")


def say_error(message: str, hint: str = "") -> None:
    """Write an error and its hint to stderr; option keys in backticks become flags."""
    say(with_flags(f"Error: {message}" + (f"\nHint: {hint}" if hint else "")))


def prompt(text: str) -> None:
    """Write a question to stderr; its line ends with the typed answer."""
    say_part(text)
    if isinstance(sys.stderr, Terminal):
        sys.stderr.answer()


def confirm(question: str) -> bool | None:
    """Ask a yes-or-no question on stderr; an empty answer is no. Return None if stdin is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        return None
    prompt(f"{question} [y/N] ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is shown on a terminal."""
    return stream is not None and stream.isatty()


def has_control(stream: TextIO | None) -> bool:
    """Return whether to use colours and cursor movement: a terminal, not dumb, without NO_COLOR."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return is_terminal(stream) and not is_plain


def tidy() -> None:
    """Erase an unfinished drawing below the cursor, and show the cursor again."""
    for stream in (sys.stdout, sys.stderr):
        if has_control(stream):
            draw(stream, "\x1b[?7h\x1b[J\x1b[?25h")


def say_interrupted() -> None:
    """Write "Interrupted." to stderr, on a terminal on a new line."""
    tidy()
    say_part("\nInterrupted.\n" if is_terminal(sys.stderr) else "Interrupted.\n")


class Sink:
    """The destination of the result: stdout, or a file opened immediately and truncated at the first write.

    `before_write` is called before each write, to erase a drawing. Raises UsageError if stdout is closed or
    the file cannot be opened.
    """

    in_file: ClassVar[bool] = False  # whether the result goes to a file

    def __init__(self, path: str | None = None) -> None:
        self.name = path or "stdout"
        self._is_file = path is not None
        self._is_fresh = True
        self.before_write: Callable[[], None] = lambda: None
        self._stream = self._opened(path)
        Sink.in_file = self._is_file

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._is_file:
            self._stream.close()
            Sink.in_file = False

    @property
    def encoding(self) -> str:
        """The stream's encoding."""
        return self._stream.encoding or "utf-8"

    @property
    def is_file(self) -> bool:
        """Whether the result goes to a regular file or a non-terminal device such as /dev/null."""
        with suppress(OSError, ValueError):
            mode = os.fstat(self._stream.fileno()).st_mode
            return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not self._stream.isatty())
        return self._is_file

    @property
    def is_terminal(self) -> bool:
        """Whether the result goes to a terminal."""
        return not self._is_file and self._stream.isatty()

    @property
    def codes_of(self) -> Callable[[str], tuple[str, str]]:
        """A function from a style of rich to the control codes before and after a text in this style.

        The codes are empty on a terminal without styles; with NO_COLOR they have no colours.
        """
        from rich.console import Console
        from rich.text import Text

        console = Console(file=self._stream, highlight=False, markup=False)

        def codes(style: str) -> tuple[str, str]:
            with console.capture() as captured:
                console.print(Text("x", style=style), end="")
            before, _, after = captured.get().partition("x")
            return before, after

        return codes

    @property
    def has_control(self) -> bool:
        """Whether the result goes to a terminal on which lines can be redrawn."""
        return not self._is_file and has_control(self._stream)

    def wrap_words(self) -> None:
        """Wrap what is written at words, if it goes to a terminal with cursor movement."""
        if isinstance(self._stream, Terminal):
            self._stream.is_wrapped = has_control(self._stream)

    def write(self, text: str, codes: tuple[str, str] = ("", "")) -> None:
        """Write and flush. `codes`: gencli's own control codes before and after the text, for a terminal.

        Raises OutputClosed for a closed pipe, GenerationError for another OSError.
        """
        self.before_write()
        try:
            if self._is_file and self._is_fresh and stat.S_ISREG(os.fstat(self._stream.fileno()).st_mode):
                self._stream.truncate(0)
            self._is_fresh = False
            if isinstance(self._stream, Terminal):
                self._stream.write(text, codes)
            else:
                self._stream.write(text.join(codes))
            self._stream.flush()
        except BrokenPipeError:
            self._detach()
            raise OutputClosed from None
        except OSError as error:
            self._detach()
            raise GenerationError(f"Cannot write to {self.name}: {error.strerror or error}.") from error

    def page(self, text: str) -> None:
        """Write text; what is longer than the terminal is shown by $PAGER, by default less."""
        pager = os.environ.get("PAGER", "less").split()
        if not pager or not self.is_terminal or text.count("\n") < shutil.get_terminal_size().lines:
            return self.write(text)
        import subprocess

        try:
            subprocess.run(pager, input=text.encode(), env={"LESS": "FRX"} | os.environ, check=False)
        except OSError:  # there is none
            self.write(text)

    def _detach(self) -> None:
        # The buffer would raise again when the interpreter flushes it at exit.
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


def result_width() -> int:
    """Return the columns of the terminal that shows the result; 0 if it goes elsewhere."""
    return 0 if Sink.in_file else columns_of(sys.stdout)


def columns_of(stream: TextIO | None) -> int:
    """Return the columns of a terminal; 0 if they are unknown, and for another stream."""
    if stream is None or not stream.isatty():
        return 0
    columns = os.environ.get("COLUMNS", "")
    is_set = columns.isdecimal() and int(columns) > 0
    return int(columns) if is_set else os.get_terminal_size(stream.fileno()).columns


_GAP = 2
_MAX_WORD = 16  # cells of a word that is not broken

_Lines = Sequence[tuple[str, ...]]


def table(rows: Iterable[Sequence[str]], width: int | None = None) -> str:
    """Return rows as lines, with columns as wide as their widest cell.

    `width`: the most cells of a line, by default those of the terminal that shows the result; 0: any number.
    In a narrower table cells are wrapped at words, and columns without room follow below, beside the first.
    """
    lines = [tuple(row) for row in rows]
    limit = (result_width() if width is None else width) or 1 << 30
    return "\n".join(_laid_out(part, limit) for part in _parts(lines, limit))


def _parts(lines: _Lines, limit: int) -> list[_Lines]:
    """Return the tables with all columns in which every column has room for its words."""
    least = [_least(column) for column in zip(*lines, strict=True)]
    parts, room = [[0]], limit - sum(least[:1])
    for at in range(1, len(least)):
        if room < _GAP + least[at] and len(parts[-1]) > 1:
            parts.append([0])
            room = limit - least[0]
        parts[-1].append(at)
        room -= _GAP + least[at]
    return [[tuple(line[at] for at in part) for line in lines] for part in parts]


def _laid_out(lines: _Lines, limit: int) -> str:
    columns = list(zip(*lines, strict=True))
    widths, least = [max(map(cell_width, column)) for column in columns], [*map(_least, columns)]
    over = sum(widths) + _GAP * (len(widths) - 1) - limit
    for _ in range(max(0, over)):
        spare = [at for at, width in enumerate(widths) if width > least[at]]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    shown = []
    for line in lines:
        cells = [_wrapped(text, width) for text, width in zip(line, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            filled = (
                part + " " * (width - cell_width(part)) for part, width in zip(parts, widths, strict=True)
            )
            shown.append("  ".join(filled).rstrip() + "\n")
    return "".join(shown)


def _least(column: Sequence[str]) -> int:
    # Cells of a column's longest word.
    words = (min(_MAX_WORD, cell_width(word)) for text in column for word in text.split())
    return max(words, default=1)


def _wrapped(text: str, width: int) -> list[str]:
    if cell_width(text) <= width:
        return [text]
    from rich.console import Console  # only narrow terminals need it
    from rich.text import Text

    return [line.plain.rstrip() for line in Text(text).wrap(Console(width=width), width)]
