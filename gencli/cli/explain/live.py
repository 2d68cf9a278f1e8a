"""Live view of a trace that is being written: coloured texts, and totals after each text."""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gencli.cli.explain.brush import Brush
from gencli.cli.explain.levels import facts_of, legend, level_of
from gencli.cli.explain.tally import Tally
from gencli.cli.explain.trace_source import is_chosen
from gencli.cli.terminal.render import Sink
from gencli.errors import GencliError, GenerationError
from gencli.explain.record import Record
from gencli.explain.trace_file import read_lines, text_label
from gencli.text.escapes import escape_controls

__all__ = ["show_live"]

_MOST_TEXTS = 100_000
_MOST_HELD = 1 << 20  # tokens of texts that wait for an earlier one


def show_live(lines: Iterable[str], sink: Sink, request: str | None = None, sample: int | None = None) -> int:
    """Show texts in the order in which they begin, until all have ended; return how many were shown.

    `request` and `sample` select texts. Raises GenerationError for another file, or one that is too large.
    """
    texts = _Texts(sink)
    try:
        _follow(lines, texts, request, sample)
    except (GencliError, KeyboardInterrupt):
        texts.break_line()  # the next message begins a new line
        raise
    return texts.count


def _follow(lines: Iterable[str], texts: _Texts, request: str | None, sample: int | None) -> None:
    """Add lines until all texts have ended."""
    total, ended = 0, 0
    begun = set[tuple[str, int]]()
    for key, line in read_lines(lines):
        kind = line["kind"]
        if kind == "text":
            begun.add(key)
            found = line.get("texts")  # number of texts of the run; older traces lack it
            total = max(found if isinstance(found, int) else 0, len(begun))
            if len(begun) > _MOST_TEXTS:
                raise GenerationError(f"The trace has more than {_MOST_TEXTS:,} texts.")
        ended += kind == "end"
        if is_chosen(key, request, sample):
            texts.has_labels = total > 1
            texts.add(key, line)
        if total and ended >= total:
            return


@dataclass(slots=True)
class _Text:
    """A text that has begun: its tokens that are not shown yet, and its totals."""

    held: list[tuple[str, int]] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    is_done: bool = False

    def add(self, record: Record) -> None:
        """Add a token."""
        self.tally.add(record)
        self.held.append((self._text(record), level_of("probability", facts_of(record))))

    def _text(self, record: Record) -> str:
        """Return the text that the token adds; a character of several tokens comes with the last of them."""
        try:
            data = base64.b64decode(record.get("bytes") or "", validate=True)
        except (binascii.Error, TypeError, ValueError):
            data = b""
        return self.decoder.decode(data) if data else str(record["text"])


class _Texts:
    """Shows the first text that has not ended; later texts wait."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self._brush = sink, Brush(sink)
        self._open: dict[tuple[str, int], _Text] = {}  # in the order of their beginnings
        self._num_held = 0
        self._is_begun = False
        self.has_labels = False  # whether there are several texts
        self.count = 0

    def add(self, key: tuple[str, int], line: Mapping[str, Any]) -> None:
        """Add a line of a trace, and show newly visible text."""
        if line["kind"] == "text":
            self._open.setdefault(key, _Text())
            return
        text = self._open.get(key)
        if text is None:
            return
        if line["kind"] == "end":
            text.is_done = True
        else:
            text.add(line)
            self._num_held += 1
        self._show()
        if self._num_held > _MOST_HELD:
            raise GenerationError(
                f"More than {_MOST_HELD:,} tokens of texts wait for an earlier one.",
                hint="Choose one with --run and --sample.",
            )

    def break_line(self) -> None:
        """End the line of a text that is partly shown."""
        if self._is_begun:
            self._sink.write("\n")

    def _show(self) -> None:
        while self._open:
            key, text = next(iter(self._open.items()))
            if self.has_labels and not self._is_begun:
                self._sink.write(("\n" if self.count else "") + f"== {text_label(key)}\n")
            self._is_begun = True
            for piece, number in text.held:
                self._brush.write(escape_controls(piece), number)
            self._num_held -= len(text.held)
            text.held.clear()
            if not text.is_done:
                return
            self._sink.write(self._page(text.tally))
            del self._open[key]
            self._is_begun = False
            self.count += 1

    def _page(self, tally: Tally) -> str:
        """Return the totals of a text that was shown."""
        if not tally.count:
            return "No tokens.\n"
        explained = legend("probability", self._brush.look)
        return "\n".join(["\n", tally.head() + explained, tally.table(), tally.surprising()])
