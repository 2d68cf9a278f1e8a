"""A trace: the records of explained tokens as JSON lines, written while they are made, and read back.

A line is an object with a `kind`: `text` begins a sample (request, sample, model, prompt, chain, seed),
`token` is a record (see gencli.explain.record), `end` says how the sample ended. The lines of samples that
run side by side are mixed; `run` and `sample` tell them apart. docs/trace.schema.json has all fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gencli.core.events import Error, Event, Finish, Token
from gencli.errors import GenerationError
from gencli.explain.record import VERSION, Record, token_record
from gencli.json_reader import DocumentError, parse_json
from gencli.text.tokenizer import Tokenizer

__all__ = ["Head", "TraceWriter", "TracedText", "read_trace"]

_MOST = 1 << 22  # characters of a line
Head = Callable[[str, int], Mapping[str, Any]]  # what is said of a sample before its tokens


@dataclass(slots=True)
class _Sample:
    """Records of a running sample that wait for its end, and the number of tokens so far."""

    count: int = 0
    waiting: list[Record] = field(default_factory=list)


class TraceWriter:
    """Writes the lines of a trace. `waits`: a sample may be tried again, so only its last tokens count."""

    def __init__(
        self, write: Callable[[str], None], head: Head, tokenizer: Tokenizer, *, waits: bool = False
    ) -> None:
        self._write, self._head, self._tokenizer, self._waits = write, head, tokenizer, waits
        self._running: dict[tuple[str, int], _Sample] = {}

    def add(self, event: Event) -> None:
        """Write what the event adds."""
        if isinstance(event, Token):
            self._add_token(event)
        elif isinstance(event, Finish | Error):
            self._end(event)

    def close(self) -> None:
        """Do nothing: every line is written when its event comes."""

    def _sample(self, request: str, sample: int) -> _Sample:
        key = request, sample
        if key not in self._running:
            self._running[key] = _Sample()
            self._line("text", {"run": request, "sample": sample, **self._head(request, sample)})
        return self._running[key]

    def _add_token(self, event: Token) -> None:
        own = self._sample(event.request, event.sample)
        for view in event.views:
            record = token_record(
                view, self._tokenizer, run=event.request, sample=event.sample, position=own.count
            )
            own.count += 1
            if self._waits:
                own.waiting.append(record)
            else:
                self._line("token", record)

    def _end(self, event: Finish | Error) -> None:
        own = self._sample(event.request, event.sample)
        count = event.completion_tokens if isinstance(event, Finish) else 0
        last = own.waiting[len(own.waiting) - count :] if count else []
        for position, record in enumerate(last):
            self._line("token", {**record, "pos": position})
        reason = event.reason if isinstance(event, Finish) else "error"
        tokens = len(last) if self._waits else own.count
        self._line("end", {"run": event.request, "sample": event.sample, "reason": reason, "tokens": tokens})
        del self._running[event.request, event.sample]

    def _line(self, kind: str, values: Mapping[str, Any]) -> None:
        self._write(json.dumps({"v": VERSION, "kind": kind, **values}, ensure_ascii=False) + "\n")


@dataclass(frozen=True, slots=True)
class TracedText:
    """One sample of a trace: what is said of it, its records, and why it ended; "" while it runs."""

    head: Mapping[str, Any]
    records: tuple[Record, ...]
    reason: str

    @property
    def key(self) -> tuple[str, int]:
        """The request and the number of the sample."""
        return self.head["run"], self.head["sample"]


def read_trace(lines: Iterable[str]) -> list[TracedText]:
    """Return the samples of a trace in the order in which they began. GenerationError for another file."""
    heads: dict[tuple[str, int], Mapping[str, Any]] = {}
    records: dict[tuple[str, int], list[Record]] = {}
    reasons: dict[tuple[str, int], str] = {}
    for number, line in _objects(lines):
        sample = line.get("sample")
        if line.get("v") != VERSION or line.get("kind") not in ("text", "token", "end"):
            raise GenerationError(f"Line {number} is no line of a trace of version {VERSION}.")
        if not isinstance(sample, int):
            raise GenerationError(f"Line {number} has no number of a sample.")
        key = str(line.get("run")), sample
        if line["kind"] != "text" and key not in heads:
            raise GenerationError(f"Line {number} belongs to no text that has begun.")
        if line["kind"] == "text":
            heads[key], records[key] = line, []
        elif line["kind"] == "token":
            records[key].append(_checked(line, number))
        else:
            reasons[key] = str(line.get("reason"))
    return [TracedText(head, tuple(records[key]), reasons.get(key, "")) for key, head in heads.items()]


def _objects(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            found = parse_json(text[:_MOST])
        except DocumentError as error:
            raise GenerationError(f"Line {number} is no JSON: {error.text}") from None
        if not isinstance(found, dict):
            raise GenerationError(f"Line {number} is no object.")
        yield number, found


def _checked(line: dict[str, Any], number: int) -> Record:
    """Return a token's record. Raises GenerationError if a field is absent or of another type."""
    try:
        _check_record(line)
    except (KeyError, TypeError, ValueError) as error:
        raise GenerationError(f"Line {number} is no record of a token: {error}.") from None
    return line


def _check_record(line: Mapping[str, Any]) -> None:
    """Raise KeyError, TypeError or ValueError if a record lacks what its readers use."""
    _typed(line, pos=int, id=int, text=str, raw=dict, final=dict, stages=list, draw=dict, decided_by=list)
    for place in (line["raw"], line["final"], *line["stages"]):
        _typed(place, top=list)
        _number_or_none(place, "p", "entropy")
        for _, text, p in place["top"]:
            _typed({"text": text, "p": p}, text=str, p=int | float)
    _number_or_none(line, "surprise")
    _typed(line["raw"], alive=int)
    _typed(line["final"], alive=int)
    for stage in line["stages"]:
        _typed(stage, name=str, params=str, acted=bool, alive=list, removed=list, changed=list, note=str)
        _typed({"before": stage["alive"][0], "after": stage["alive"][1]}, before=int, after=int)
        _number_or_none(stage, "mass_kept")
    if line["forgone"] is not None:
        _typed(line["forgone"], text=str, removed_by=str)
    _typed(line["draw"], kind=str)
    _number_or_none(line["draw"], "margin")
    if "logits" in line:
        _typed(line, logits=dict)


def _typed(found: Mapping[str, Any], **types: Any) -> None:
    for name, kind in types.items():
        if not isinstance(found[name], kind):
            raise TypeError(f"{name} is {str(found[name])[:40]!r}")


def _number_or_none(found: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if found[name] is not None and not isinstance(found[name], int | float):
            raise TypeError(f"{name} is {str(found[name])[:40]!r}")
