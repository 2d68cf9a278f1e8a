"""How results are shown: streamed text, labelled blocks, JSON. Each takes a run's events as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gencli.cli.terminal.records import record_text
from gencli.cli.terminal.render import Sink
from gencli.core.events import Error, Event, Finish, Token
from gencli.results.record import RunInfo, record
from gencli.results.results import Results, Row

__all__ = [
    "BlockWriter",
    "JsonWriter",
    "LineWriter",
    "RecordWriter",
    "TextWriter",
    "Writer",
    "headed",
    "label",
]


class Writer(Protocol):
    """Shows a run; `results` has taken note of an event before `add` is called with it."""

    def add(self, event: Event) -> None:
        """Show what the event changes."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


class TextWriter:
    """One text, as it is made or at once; one newline follows it if it does not end with one."""

    def __init__(self, sink: Sink, results: Results, *, is_streaming: bool) -> None:
        self._sink, self._results, self._is_streaming = sink, results, is_streaming

    def add(self, event: Event) -> None:
        """Write new text."""
        if isinstance(event, Token) and event.text and self._is_streaming:
            self._sink.write(event.text)

    def close(self) -> None:
        """Write what is missing."""
        text = self._results.rows[0].shown(0)
        if text is not None:
            self._sink.write(_rest("" if not self._is_streaming else text, text))


class BlockWriter:
    """Several texts, one labelled block after the other, in the order of the prompts.

    The first unfinished text is streamed; what comes for the others waits until it is their turn.
    `num_written` counts the texts that had it.
    """

    def __init__(self, sink: Sink, results: Results, *, is_streaming: bool) -> None:
        self._sink, self._is_streaming = sink, is_streaming
        self._turns = _turns(results)
        self._open = next(self._turns, None)
        self.num_written = 0
        self._is_first = True
        self._written: str | None = None  # of the block that is open

    def add(self, event: Event) -> None:
        """Write what the open block gained, and the blocks after it that are complete."""
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
        """All blocks are written by then."""

    def _write(self, row: Row, sample: int, *, is_done: bool) -> None:
        text = row.shown(sample) if is_done else row.texts[sample]
        if text is None:
            return
        head = ""
        if self._written is None:
            head = ("" if self._is_first else "\n") + label(row, sample) + "\n"
            self._is_first, self._written = False, ""
        new = _rest(self._written, text) if is_done else text[len(self._written) :]
        if head + new:
            self._sink.write(head + new)
        self._written = text


class LineWriter:
    """Results alone, each with its newline, in the order of the prompts and as they become complete."""

    def __init__(self, sink: Sink, results: Results) -> None:
        self._sink = sink
        self._turns = _turns(results)
        self._open = next(self._turns, None)

    def add(self, event: Event) -> None:
        """Write the results that nothing stands before."""
        while self._open and self._open[0].outcomes[self._open[1]] is not None:
            row, sample = self._open
            self._open = next(self._turns, None)
            text = row.shown(sample)
            if text is not None:
                self._sink.write(_rest("", text))

    def close(self) -> None:
        """All results are written by then."""


class RecordWriter:
    """A record for each prompt, as it finishes: a line of JSON (`jsonl`), or a document of YAML (`yaml`)."""

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
        """All records are written by then."""


class JsonWriter:
    """One JSON document at the end: an object, or an array for several prompts."""

    def __init__(self, sink: Sink, results: Results, info: RunInfo) -> None:
        self._sink, self._results, self._info = sink, results, info

    def add(self, event: Event) -> None:
        """Nothing to show before the end."""

    def close(self) -> None:
        """Write the document."""
        records = [record(row, self._info) for row in self._results.rows]
        document = records[0] if len(records) == 1 else records
        self._sink.write(record_text(document, "json", encoding=self._sink.encoding))


def _turns(results: Results) -> Iterator[tuple[Row, int]]:
    """Rows and samples in the order in which they are shown."""
    return ((row, sample) for row in results.rows for sample in range(len(row.texts)))


def label(row: Row, sample: int) -> str:
    """The line above a block, as head(1) and tail(1) write it."""
    return headed(row.id + (f".{sample + 1}" if len(row.texts) > 1 else ""), row.prompt)


def headed(number: str, prompt: str) -> str:
    """The label of a block: its number and the beginning of the prompt."""
    prompt = " ".join(prompt.split())
    return f"==> {number}: {prompt if len(prompt) <= 60 else prompt[:57] + '...'} <=="


def _rest(written: str, text: str) -> str:
    """What is still to be written of a text, and the newline at its end."""
    return text[len(written) :] + ("" if text.endswith("\n") else "\n")
