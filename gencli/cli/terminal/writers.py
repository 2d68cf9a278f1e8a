"""Writers of results: streamed text, labelled blocks, lines, JSON and YAML. Each gets all events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gencli.cli.terminal.pens import Pen, PlainPen
from gencli.cli.terminal.records import record_text
from gencli.cli.terminal.render import Sink
from gencli.core.events import Error, Event, Finish, Token
from gencli.results.run_record import RunInfo, record
from gencli.results.run_results import Results, Row

__all__ = [
    "BlockWriter",
    "JsonWriter",
    "LineWriter",
    "RecordWriter",
    "TextWriter",
    "Writer",
    "block_label",
    "label",
]


class Writer(Protocol):
    """Interface of a writer of a run. The run's `Results` include an event before `add` is called with it."""

    def add(self, event: Event) -> None:
        """Write the new output of an event."""
        ...

    def close(self) -> None:
        """Write the remaining output at the end of the run."""
        ...


class TextWriter:
    """Writes one text, streamed or at the end, with a newline after it unless it ends with one."""

    def __init__(self, sink: Sink, results: Results, *, is_streaming: bool, pen: Pen | None = None) -> None:
        self._pen, self._results, self._is_streaming = pen or PlainPen(sink), results, is_streaming

    def add(self, event: Event) -> None:
        """Write new text."""
        if isinstance(event, Token) and event.text and self._is_streaming:
            self._pen.write(self._results.rows[0], 0, event.text)

    def close(self) -> None:
        """Write the text that is not streamed yet."""
        row = self._results.rows[0]
        text = row.shown(0)
        if text is not None:
            self._pen.write(row, 0, _rest("" if not self._is_streaming else text, text))


class BlockWriter:
    """Writes several texts as labelled blocks, in the order of the prompts.

    The first unfinished text is streamed; later ones wait until all before them are written. `num_written`
    counts the finished blocks.
    """

    def __init__(self, sink: Sink, results: Results, *, is_streaming: bool, pen: Pen | None = None) -> None:
        self._sink, self._is_streaming, self._pen = sink, is_streaming, pen or PlainPen(sink)
        self._turns = _samples(results)
        self._open = next(self._turns, None)
        self.num_written = 0
        self._is_first = True
        self._written: str | None = None  # the written part of the open block

    def add(self, event: Event) -> None:
        """Write the new text of the open block, and complete blocks after it."""
        while self._open:
            row, sample = self._open
            is_done = row.outcomes[sample] is not None
            if not is_done and not (self._is_streaming and row.texts[sample]):
                return
            self._write(row, sample, is_done=is_done)
            if not is_done:
                return
            self._open = next(self._turns, None)
            self.num_written += 1
            self._written = None

    def close(self) -> None:
        """Do nothing; all blocks have been written."""

    def _write(self, row: Row, sample: int, *, is_done: bool) -> None:
        text = row.shown(sample) if is_done else row.texts[sample]
        if text is None:
            return
        if self._written is None:
            self._sink.write(("" if self._is_first else "\n") + label(row, sample) + "\n")
            self._is_first, self._written = False, ""
        if new := _rest(self._written, text) if is_done else text[len(self._written) :]:
            self._pen.write(row, sample, new)
        self._written = text


class LineWriter:
    """Writes one result a line without labels, in the order of the prompts, as they are completed."""

    def __init__(self, sink: Sink, results: Results, pen: Pen | None = None) -> None:
        self._pen = pen or PlainPen(sink)
        self._turns = _samples(results)
        self._open = next(self._turns, None)

    def add(self, event: Event) -> None:
        """Write the complete results that are next in order."""
        while self._open and self._open[0].outcomes[self._open[1]] is not None:
            row, sample = self._open
            self._open = next(self._turns, None)
            text = row.shown(sample)
            if text is not None:
                self._pen.write(row, sample, _rest("", text))

    def close(self) -> None:
        """Do nothing; all results have been written."""


class RecordWriter:
    """Writes a record for each prompt when it finishes: a JSON line (`jsonl`) or a YAML document (`yaml`)."""

    def __init__(self, sink: Sink, results: Results, info: RunInfo, form: str) -> None:
        self._sink, self._results, self._info, self._form = sink, results, info, form
        self._head = ""

    def add(self, event: Event) -> None:
        """Write the prompt's record if this was its last event."""
        row = self._results.row(event.request)
        if isinstance(event, Finish | Error) and row.is_done:
            text = record_text(record(row, self._info), self._form, encoding=self._sink.encoding)
            self._sink.write(self._head + text)
            self._head = "---\n" if self._form == "yaml" else ""

    def close(self) -> None:
        """Do nothing; all records have been written."""


class JsonWriter:
    """Writes one JSON document at the end: an object, or an array for several prompts."""

    def __init__(self, sink: Sink, results: Results, info: RunInfo) -> None:
        self._sink, self._results, self._info = sink, results, info

    def add(self, event: Event) -> None:
        """Do nothing before the end."""

    def close(self) -> None:
        """Write the document."""
        records = [record(row, self._info) for row in self._results.rows]
        document = records[0] if len(records) == 1 else records
        self._sink.write(record_text(document, "json", encoding=self._sink.encoding))


def _samples(results: Results) -> Iterator[tuple[Row, int]]:
    """Return an iterator over (row, sample) in the order in which they are written."""
    return ((row, sample) for row in results.rows for sample in range(len(row.texts)))


def label(row: Row, sample: int) -> str:
    """Return the line above a block, in the format of head(1) and tail(1)."""
    return block_label(row.id + (f".{sample + 1}" if len(row.texts) > 1 else ""), row.prompt)


def block_label(number: str, prompt: str) -> str:
    """Return the label of a block: its number and at most 60 characters of the prompt."""
    prompt = " ".join(prompt.split())
    return f"==> {number}: {prompt if len(prompt) <= 60 else prompt[:57] + '...'} <=="


def _rest(written: str, text: str) -> str:
    """Return the unwritten part of a text, with a newline at its end."""
    return text[len(written) :] + ("" if text.endswith("\n") else "\n")
