"""A trace: the records of explained tokens as JSON lines; writing and reading.

A line is an object with a `kind`: `text` begins a sample (request, sample, model, prompt, chain, seed),
`token` is a record (see gencli.explain.record), `end` has the finish reason. The lines of concurrent samples
are interleaved; `run` and `sample` distinguish them. docs/trace.schema.json has all fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gencli.core.events import Error, Event, Finish, Token, by_sample
from gencli.errors import GenerationError
from gencli.explain.check import check_record
from gencli.explain.record import VERSION, Record
from gencli.explain.views import records
from gencli.json_text import DocumentError, parse_json
from gencli.results.run_results import of_last_attempt
from gencli.text.tokenizer import Tokenizer
from processors.explain.view import RowView

__all__ = [
    "MAX_LINE",
    "Head",
    "TraceWriter",
    "TracedText",
    "objects",
    "read_lines",
    "read_trace",
    "sample_lines",
    "text_label",
]

MAX_LINE = 1 << 22  # characters of a line
Head = Callable[[str, int], Mapping[str, Any]]  # returns the head of a sample, by request and sample


@dataclass(slots=True)
class _Sample:
    """A running sample: the number of its records, and explanations held until its end."""

    count: int = 0
    waiting: list[RowView] = field(default_factory=list)


class TraceWriter:
    """Writes the lines of a trace.

    `waits`: samples may be retried, so only tokens of the last attempt are written.
    """

    def __init__(
        self, write: Callable[[str], None], head: Head, tokenizer: Tokenizer, *, waits: bool = False
    ) -> None:
        self._write, self._head, self._tokenizer, self._waits = write, head, tokenizer, waits
        self._running: dict[tuple[str, int], _Sample] = {}

    def add(self, event: Event) -> None:
        """Write the lines of an event."""
        if isinstance(event, Token):
            self._add_token(event)
        for end in by_sample([event]):
            if isinstance(end, Finish | Error):
                self._end(end)

    def close(self) -> None:
        """Do nothing: lines are written when their event arrives."""

    def _sample(self, request: str, sample: int) -> _Sample:
        key = request, sample
        if key not in self._running:
            self._running[key] = _Sample()
            self._write(_text_line(request, sample, self._head(request, sample)))
        return self._running[key]

    def _add_token(self, event: Token) -> None:
        own = self._sample(event.request, event.sample)
        if self._waits:
            own.waiting += event.views
        else:
            self._add_records(event, own, event.views)

    def _end(self, event: Finish | Error) -> None:
        own = self._sample(event.request, event.sample)
        self._add_records(event, own, of_last_attempt(own.waiting, event))
        self._write(_end_line(event.request, event, own.count))
        del self._running[event.request, event.sample]

    def _add_records(self, event: Token | Finish | Error, own: _Sample, found: Sequence[RowView]) -> None:
        run, sample = event.request, event.sample
        for record in records(found, self._tokenizer, run=run, sample=sample, first=own.count):
            self._write(_line("token", record))
        own.count += len(found)


def sample_lines(
    run: str, end: Finish | Error, head: Mapping[str, Any], found: Sequence[RowView], tokenizer: Tokenizer
) -> Iterator[str]:
    """Yield the lines of a sample that has ended, with the explanations of its tokens."""
    yield _text_line(run, end.sample, head)
    for record in records(found, tokenizer, run=run, sample=end.sample):
        yield _line("token", record)
    yield _end_line(run, end, len(found))


def _text_line(run: str, sample: int, head: Mapping[str, Any]) -> str:
    return _line("text", {"run": run, "sample": sample, **head})


def _end_line(run: str, end: Finish | Error, tokens: int) -> str:
    reason = end.reason if isinstance(end, Finish) else "error"
    return _line("end", {"run": run, "sample": end.sample, "reason": reason, "tokens": tokens})


def _line(kind: str, values: Mapping[str, Any]) -> str:
    return json.dumps({"v": VERSION, "kind": kind, **values}, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True, repr=False)
class TracedText:
    """One sample of a trace: its head, its records, and the reason of its end, "" while it runs.

    A notebook shows it as a coloured text.
    """

    head: Mapping[str, Any]
    records: tuple[Record, ...]
    reason: str

    @property
    def key(self) -> tuple[str, int]:
        """The request and the index of the sample."""
        return self.head["run"], self.head["sample"]

    def __repr__(self) -> str:
        run, sample = self.key
        return f"TracedText(run={run!r}, sample={sample}, {len(self.records)} tokens, reason={self.reason!r})"

    def _repr_html_(self) -> str:
        from gencli.explain.page import fragment as html  # only for those who look

        title = f"{self.head.get('model')}, prompt {text_label(self.key)}"
        return html.fragment(
            *html.trace(str(self.head.get("prompt", "")), self.records), html.facts(title, self.reason)
        )


def text_label(key: tuple[str, int]) -> str:
    """Return the number of a sample for a person, as in 1.2 for the second one of request 1."""
    request, sample = key
    return f"{request}.{sample + 1}"


def read_trace(lines: Iterable[str]) -> list[TracedText]:
    """Return the samples of a trace in the order of their beginnings. GenerationError for another file."""
    heads: dict[tuple[str, int], Mapping[str, Any]] = {}
    records: dict[tuple[str, int], list[Record]] = {}
    reasons: dict[tuple[str, int], str] = {}
    for key, line in read_lines(lines):
        if line["kind"] == "text":
            heads[key], records[key] = line, []  # for a row that a batch ran again, the last run counts
            reasons.pop(key, None)
        elif line["kind"] == "token":
            records[key].append(line)
        else:
            reasons[key] = str(line.get("reason"))
    return [TracedText(head, tuple(records[key]), reasons.get(key, "")) for key, head in heads.items()]


def read_lines(lines: Iterable[str]) -> Iterator[tuple[tuple[str, int], Mapping[str, Any]]]:
    """Yield the checked lines of a trace one by one, each with its request and sample.

    Raises GenerationError at the first invalid line.
    """
    begun = set[tuple[str, int]]()
    for number, line in objects(lines):
        sample = line.get("sample")
        if line.get("v") != VERSION or line.get("kind") not in ("text", "token", "end"):
            raise GenerationError(f"Line {number} is no line of a trace of version {VERSION}.")
        if not isinstance(sample, int):
            raise GenerationError(f"Line {number} has no number of a sample.")
        if not isinstance(line.get("run"), str):
            raise GenerationError(f"Line {number} has no request (run).")
        key = line["run"], sample
        if line["kind"] != "text" and key not in begun:
            raise GenerationError(f"Line {number} belongs to no text that has begun.")
        begun.add(key)
        yield key, _checked(line, number) if line["kind"] == "token" else line


def objects(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects of lines with their numbers from 1. GenerationError for anything else."""
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            found = parse_json(text[:MAX_LINE])
        except DocumentError as error:
            raise GenerationError(f"Line {number} is no JSON: {error.text}") from None
        if not isinstance(found, dict):
            raise GenerationError(f"Line {number} is no object.")
        yield number, found


def _checked(line: dict[str, Any], number: int) -> Record:
    """Return a token's record. Raises GenerationError if a field is missing or has another type."""
    try:
        check_record(line)
    except (LookupError, TypeError, ValueError) as error:
        raise GenerationError(f"Line {number} is no record of a token: {error}.") from None
    return line
