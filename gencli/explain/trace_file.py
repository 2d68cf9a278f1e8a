"""A trace: the records of explained tokens as JSON lines (docs/trace.schema.json); writing, reading,
checking a line, and following a file that another process is still writing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, get_args

from gencli.core.events import Error, Event, Finish, Token, by_sample
from gencli.errors import GenerationError, UsageError
from gencli.explain.token_record import VERSION, Record, records
from gencli.files import open_regular
from gencli.helpers import counted
from gencli.json_text import DocumentError, parse_json
from gencli.results.run_results import of_last_attempt
from gencli.text.tokenizer import Tokenizer
from processors.catalog import Draw
from processors.row_view import RowView

MAX_LINE = 1 << 22  # characters of a line
Head = Callable[[str, int], Mapping[str, Any]]  # returns the head of a sample, by request and sample


class TraceWriter:
    """Writes the lines of a trace; `waits`: samples may be retried, only the last attempt is written."""

    def __init__(
        self, write: Callable[[str], None], head: Head, tokenizer: Tokenizer, *, waits: bool = False
    ) -> None:
        self._write, self._head, self._tokenizer, self._waits = write, head, tokenizer, waits
        self._counts: dict[tuple[str, int], int] = {}  # records written of each running sample
        self._waiting: dict[tuple[str, int], list[RowView]] = {}  # explanations held until its end

    def add(self, event: Event) -> None:
        """Write the lines of an event."""
        if isinstance(event, Token):
            self._add_records(event, () if self._waits else event.views)
            if self._waits:
                self._waiting.setdefault((event.request, event.sample), []).extend(event.views)
        for end in by_sample([event]):
            if isinstance(end, Finish | Error):
                key = end.request, end.sample
                self._add_records(end, of_last_attempt(self._waiting.pop(key, []), end))
                self._write(_end_line(end.request, end, self._counts.pop(key)))

    def close(self) -> None:
        """Do nothing: lines are written when their event arrives."""

    def _add_records(self, event: Token | Finish | Error, views: Sequence[RowView]) -> None:
        run, sample = event.request, event.sample
        if (run, sample) not in self._counts:
            self._write(_text_line(run, sample, self._head(run, sample)))
        first = self._counts.get((run, sample), 0)
        for record in records(views, self._tokenizer, run=run, sample=sample, first=first):
            self._write(_line("token", record))
        self._counts[run, sample] = first + len(views)


def sample_lines(
    run: str, end: Finish | Error, head: Mapping[str, Any], views: Sequence[RowView], tokenizer: Tokenizer
) -> Iterator[str]:
    """Yield the lines of a sample that has ended, with the explanations of its tokens."""
    yield _text_line(run, end.sample, head)
    for record in records(views, tokenizer, run=run, sample=end.sample):
        yield _line("token", record)
    yield _end_line(run, end, len(views))


def _text_line(run: str, sample: int, head: Mapping[str, Any]) -> str:
    return _line("text", {"run": run, "sample": sample, **head})


def _end_line(run: str, end: Finish | Error, tokens: int) -> str:
    reason = end.reason if isinstance(end, Finish) else "error"
    return _line("end", {"run": run, "sample": end.sample, "reason": reason, "tokens": tokens})


def _line(kind: str, values: Mapping[str, Any]) -> str:
    return json.dumps({"v": VERSION, "kind": kind, **values}, ensure_ascii=False) + "\n"


class Trace(tuple[Record, ...]):
    """The records of consecutive tokens. A notebook shows them as a coloured text."""

    __slots__ = ()

    def __repr__(self) -> str:
        decided = sum(bool(record["decided_by"]) for record in self)
        return f"Trace({counted(len(self), 'token')}, {decided} decided by a stage)"

    def _repr_html_(self) -> str:
        from gencli.explain.page import html_fragments as html

        return html.fragment(*html.trace("", self))


@dataclass(frozen=True, slots=True, repr=False)
class TracedText:
    """One sample of a trace: head, records, reason of its end ("" while it runs). A notebook colours it."""

    head: Mapping[str, Any]
    records: tuple[Record, ...]
    reason: str

    @property
    def key(self) -> tuple[str, int]:
        """The request and the index of the sample."""
        return self.head["run"], self.head["sample"]

    def __repr__(self) -> str:
        run, sample = self.key
        tokens = counted(len(self.records), "token")
        return f"TracedText(run={run!r}, sample={sample}, {tokens}, reason={self.reason!r})"

    def _repr_html_(self) -> str:
        from gencli.explain.page import html_fragments as html

        title = f"{self.head.get('model')}, prompt {text_label(self.key)}"
        blocks = html.trace(str(self.head.get("prompt", "")), self.records)
        return html.fragment(*blocks, html.facts(title, self.reason))


def text_label(key: tuple[str, int], num_samples: int = 2) -> str:
    """Return a sample's number: 1.2 for the second one of request 1, and 1 for the only one."""
    request, sample = key
    return f"{request}.{sample + 1}" if num_samples > 1 else request


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
    """Yield the lines of a trace, each with request and sample. GenerationError at the first invalid line."""
    begun = set[tuple[str, int]]()
    for number, line in objects(lines):
        sample = line.get("sample")
        if line.get("v") != VERSION or line.get("kind") not in ("text", "token", "end"):
            raise GenerationError(f"Line {number} is no line of a trace of version {VERSION}.")
        if not isinstance(sample, int):
            raise GenerationError(f"Line {number} has no number of its sample.")
        if not isinstance(line.get("run"), str):
            raise GenerationError(f"Line {number} has no request (run).")
        key = line["run"], sample
        if line["kind"] != "text" and key not in begun:
            raise GenerationError(f"Line {number} belongs to no text that has begun.")
        begun.add(key)
        if line["kind"] == "token":
            try:
                check_record(line)
            except (LookupError, TypeError, ValueError) as error:
                raise GenerationError(f"Line {number} is no record of a token: {error}.") from None
        yield key, line


def objects(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects of lines with their numbers from 1. GenerationError for anything else."""
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            line = parse_json(text[:MAX_LINE])
        except DocumentError as error:
            raise GenerationError(f"Line {number} is no JSON: {error.text}") from None
        if not isinstance(line, dict):
            raise GenerationError(f"Line {number} is no object.")
        yield number, line


_MAX_NUMBER = 1e39  # above any float32
_MAX_COUNT = 1 << 53  # the largest integer that every JSON reader represents exactly


def check_record(line: Mapping[str, Any]) -> None:
    """Raise KeyError, TypeError or ValueError if a field that readers use is missing or invalid."""
    typed({"name": "", **line}, name=str, text=str, bytes=str, raw=dict, final=dict, stages=list, draw=dict)
    _counts(line, "pos", "id")
    for key in ("raw", "final"):
        _check_state(line[key])
        _counts(line[key], "alive")
    if line["surprise"] is not None:
        _numbers(line, "surprise", least=0)
    for stage in line["stages"]:
        _check_stage(stage)
    names = {stage["name"] for stage in line["stages"]}
    _check_names(line["decided_by"], names, "decided_by")
    if "instead" in line:
        tokens, count = _listed(line["instead"]), len(line["decided_by"])
        if len(tokens) != count:
            raise ValueError(f"instead has {len(tokens)} tokens for {count} stages")
        for entry in tokens:
            if entry is not None:
                _check_named(entry)
    draw = line["draw"]
    if draw["kind"] not in get_args(Draw):
        raise ValueError(f"kind is {_shown(draw['kind'])}")
    if draw["margin"] is not None:
        _numbers(draw, "margin")
    for key in ("greedy", "forced"):
        if key in draw:
            typed(draw, **{key: bool})
    if draw["runner_up"] is not None:
        _check_named(draw["runner_up"])
    if line["forgone"] is not None:
        typed(line["forgone"], text=str)
        _counts(line["forgone"], "id")
        _numbers(line["forgone"], "p", least=0, largest=1)
        _check_names([line["forgone"]["removed_by"]], names, "removed_by")
    if "logits" in line:
        typed(line, logits=dict)
    if "mask" in line:
        _check_names(line["mask"]["constrained_by"], names, "constrained_by")
        _counts(line["mask"], "n_masked")


def _check_state(state: Mapping[str, Any]) -> None:
    _numbers(state, "p", "others", least=0, largest=1)
    _numbers(state, "entropy", least=0)
    if state["logit"] is not None:
        _numbers(state, "logit")
    if state["rank"] is not None:
        _counts(state, "rank")
    _check_weighed(state["top"])


def _check_weighed(entries: Any) -> None:
    for token, text, p in _listed(entries):
        _check_named([token, text])
        _numbers({"p": p}, "p", least=0, largest=1)


def _check_named(entry: Any) -> None:
    token, text = _listed(entry)
    _counts({"id": token}, "id")
    typed({"text": text}, text=str)


def _check_stage(stage: Mapping[str, Any]) -> None:
    _check_state(stage)
    typed(stage, name=str, params=str, acted=bool, note=str)
    if "why_not" in stage:
        typed(stage, why_not=str)
    _numbers(stage, "mass_kept", least=0, largest=1)
    before, after = _listed(stage["alive"])
    _counts({"before": before, "after": after}, "before", "after")
    _check_weighed(stage["removed"])
    for token, text, old, new in _listed(stage["changed"]):
        _check_named([token, text])
        _numbers({"changed": old}, "changed")
        _numbers({"changed": new}, "changed")


def _check_names(names: Any, stages: Iterable[str], field: str) -> None:
    for name in _listed(names):
        if not isinstance(name, str) or name not in stages:
            raise ValueError(f"{field} names {_shown(name)}, which is no stage of it")


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{_shown(value)} is no list")
    return value


def typed(fields: Mapping[str, Any], **types: type) -> None:
    """Raise KeyError for a missing field, TypeError for one of another type."""
    for name, kind in types.items():
        if not isinstance(fields[name], kind):
            raise TypeError(f"{name} is {_shown(fields[name])}")


def _counts(fields: Mapping[str, Any], *names: str) -> None:
    for name in names:
        value = fields[name]
        if type(value) is not int or not 0 <= value <= _MAX_COUNT:
            raise ValueError(f"{name} is {_shown(value)}")


def _numbers(
    fields: Mapping[str, Any], *names: str, least: float = -_MAX_NUMBER, largest: float = _MAX_NUMBER
) -> None:
    for name in names:
        if type(fields[name]) not in (int, float) or not least <= fields[name] <= largest:  # no booleans
            raise ValueError(f"{name} is {_shown(fields[name])}")


def _shown(value: Any) -> str:
    return repr(str(value)[:40])


_PAUSE = 0.1  # seconds between two checks of the end of the file
_CHUNK = 1 << 16  # bytes


def follow(name: str, pause: float = _PAUSE) -> Iterator[str]:
    """Yield the complete lines of a trace, existing and future ones; never ends by itself.

    A pipe ends with its writer. Keeps one line in memory. `pause`: seconds to sleep at the end of the file.
    Raises UsageError for a file that cannot be read and a pause of 0, which would keep a core busy;
    GenerationError if the file is replaced or truncated, or for an endless line.
    """
    if not pause > 0:
        raise UsageError(f"pause is {pause:g}, but has to be above 0 seconds.")
    held = b""
    with opened_trace(name) as file:
        is_file = file.seekable()
        while True:
            if chunk := file.read(_CHUNK):
                *lines, held = (held + chunk).split(b"\n")
                yield from (line.decode("utf-8") for line in lines)
                if len(held) > MAX_LINE:
                    raise GenerationError(f"The trace has a line of more than {MAX_LINE:,} bytes.")
            elif is_file:
                _check(Path(name), file)
                time.sleep(pause)
            else:
                return


@contextmanager
def opened_trace(name: str, *, hint: str = "") -> Iterator[BinaryIO]:
    """Open a trace. Raises UsageError if it cannot be read or is not UTF-8, also while its lines are read."""
    try:
        with open_regular(Path(name), pipes=True) as file:
            yield file
    except OSError as error:
        message = f"The trace {name!r} cannot be read: {error.strerror or error}."
        raise UsageError(message, hint=hint) from None
    except UnicodeDecodeError:
        raise UsageError(f"The trace {name!r} is not UTF-8.") from None


def _check(path: Path, file: BinaryIO) -> None:
    """Raise GenerationError if the file was replaced, or is shorter than the part read so far."""
    try:
        on_disk = os.stat(path)
    except FileNotFoundError:
        raise GenerationError(f"The trace {str(path)!r} was removed while it was read.") from None
    opened = os.fstat(file.fileno())
    if (on_disk.st_dev, on_disk.st_ino) != (opened.st_dev, opened.st_ino):
        raise GenerationError(f"The trace {str(path)!r} was replaced while it was read.")
    if opened.st_size < file.tell():
        raise GenerationError(f"The trace {str(path)!r} was cut while it was read.")
