"""The data of a batch: records of the input, rows made of them, their outcomes, the engine that runs rows;
and its progress and summary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gencli.errors import GencliError, UsageError
from gencli.helpers import clock, counted
from gencli.runtime.model_loading import Reporter
from processors.errors import ProcessorsError

if TYPE_CHECKING:
    from gencli.engine.engine import Engine


class ColumnError(UsageError):
    """A missing or unknown column: the column names are wrong, not their values."""

    is_of_columns = True


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a row has no result: type and message of the error.

    `is_of_columns`: the names of the record's columns are wrong, not their values.
    """

    type: str
    message: str
    is_of_columns: bool = False

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Return the failure of an exception; an unexpected exception is reported as a bug."""
        if isinstance(error, GencliError | ProcessorsError):
            kind = UsageError if isinstance(error, UsageError) else type(error)
            message = f"{error} {getattr(error, 'hint', '')}".strip()
            return cls(kind.__name__, message, getattr(error, "is_of_columns", False))
        name = type(error).__name__
        return cls(name, f"Unexpected {name}: {error}. This is a fault of gencli, or of a plug-in.")


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the input: its index over all files, its position and its columns.

    A line that cannot be read has a `failure` and no columns; later records are not affected.
    """

    index: int
    place: str  # file and line, for messages
    columns: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The request of a record: id, prompt or messages, and the options that it sets.

    `scored`: columns to score instead of a prompt (see gencli.scoring.scorer).
    """

    record: Record
    id: str
    prompt: str | None = None
    messages: tuple[Mapping[str, str], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    scored: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished row; `result` is a record in the form of `gencli run` with `format` = json.

    A failed row has an `error`, and other fields if known. `read`: prompt tokens fed to the model. `copied`:
    prompt tokens from the prefix cache. The output omits both, because they depend on the other rows.
    `trace`: lines of the row's trace.
    """

    index: int
    id: str
    result: Mapping[str, Any]
    is_error: bool = False
    read: int = 0
    copied: int = 0
    trace: str = ""


# Fields that are lists with one entry per sample in a result with `texts`.
SAMPLE_FIELDS = (
    "finish_reason", "matched", "offset", "completion_tokens", "parsed", "error", "speculation", "token_ids",
    "logprobs",
)  # fmt: skip


def samples_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of each sample, with `text`. The result of a row that never ran is one sample."""
    if "texts" not in result:
        return [{"text": result.get("text", ""), **{key: result.get(key) for key in SAMPLE_FIELDS}}]
    fields = {key: result[key] for key in SAMPLE_FIELDS if key in result}
    return [
        {"text": text, **dict.fromkeys(SAMPLE_FIELDS), **{key: values[j] for key, values in fields.items()}}
        for j, text in enumerate(result["texts"])
    ]


OnTokens = Callable[[int], None]  # called repeatedly with the number of new tokens


class RowEngine(Protocol):
    """Runs rows; reads only a few rows ahead, so memory does not grow with the input."""

    @property
    def notices(self) -> Sequence[str]:
        """Notices for the user so far, in order; callers print those that they have not printed yet."""

    @property
    def occupancy(self) -> float:
        """Share of the slots in use during the last step, in 0..1."""

    @property
    def reading(self) -> str:
        """Prefill progress of long prompts as text; "" if there are none."""

    @property
    def limit(self) -> int:
        """Number of samples that may run at once; halved after out-of-memory."""

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called, after which no row starts."""

    def stop(self, drain: float = 0.0) -> None:
        """Stop: running rows have `drain` more seconds, no further rows start. Safe in a signal handler."""

    def run(self, rows: Iterable[Row], on_tokens: OnTokens = ...) -> Iterator[Outcome]:
        """Yield the outcome of each row as it ends. Interrupted rows have none."""


class OwnEngine:
    """The properties of a RowEngine that runs its rows on an engine of this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def notices(self) -> list[str]:
        return self._engine.notices

    @property
    def occupancy(self) -> float:
        return self._engine.occupancy

    @property
    def limit(self) -> int:
        return self._engine.limit


_MAX_MESSAGES = 1000  # limit of distinct messages that are counted
_MAX_CHARS = 300  # characters kept of each message


@dataclass(slots=True)
class ErrorCount:
    """Number of samples that failed with one message, and the lowest index of their rows."""

    type: str
    message: str
    count: int
    first_row: int


@dataclass(slots=True)
class OutcomeCounts:
    """Counts over the outcomes of a run. `failed` counts rows; `errors` and `reasons` count samples.

    `messages` counts errors by type and message, up to 1000 distinct ones.
    """

    rows: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    prompt_tokens_read: int = 0
    prompt_tokens_copied: int = 0
    completion_tokens: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    messages: dict[tuple[str, str], ErrorCount] = field(default_factory=dict)
    drafts: Counter[str] = field(default_factory=Counter)  # forward passes, proposed, accepted; their tokens

    def add(self, outcome: Outcome) -> None:
        """Count a row."""
        self.rows += 1
        self.failed += outcome.is_error
        self.prompt_tokens += outcome.result.get("prompt_tokens") or 0
        self.prompt_tokens_read += outcome.read
        self.prompt_tokens_copied += outcome.copied
        for sample in samples_of(outcome.result):
            self.completion_tokens += sample["completion_tokens"] or 0
            self.reasons[str(sample["finish_reason"])] += 1
            if sample["error"]:
                self._add_error(outcome.index, str(sample["error"]["type"]), str(sample["error"]["message"]))
            if drafts := sample["speculation"]:
                self.drafts["forwards"] += drafts["forwards"]
                self.drafts["tokens"] += sample["completion_tokens"]
                for key in ("proposed", "accepted"):
                    self.drafts[key] += sum(drafts[key])

    @property
    def frequent(self) -> list[ErrorCount]:
        """The errors, most frequent first, then by first row."""
        return sorted(self.messages.values(), key=lambda error: (-error.count, error.first_row))

    def _add_error(self, row: int, kind: str, message: str) -> None:
        self.errors[kind] += 1
        key = kind, message if len(message) <= _MAX_CHARS else f"{message[:_MAX_CHARS]}..."
        if key in self.messages or len(self.messages) < _MAX_MESSAGES:
            entry = self.messages.setdefault(key, ErrorCount(*key, 0, row))
            entry.count += 1
            entry.first_row = min(entry.first_row, row)


class Progress:
    """Counts the work of this process from `start` on. Times are seconds of a monotonic clock.

    `before`: rows finished by earlier runs; `failed_before`: how many of them failed.
    """

    def __init__(self, total: int, *, before: int = 0, failed_before: int = 0) -> None:
        self.tally = OutcomeCounts()
        self.before = before
        self._total, self._failed_before = total, failed_before
        self._start = self._last = float("inf")
        self._tokens = 0
        self._taken = 0.0  # sum of occupancy times seconds

    def start(self, now: float) -> None:
        """Start the clock, once the model is loaded."""
        self._start = self._last = now

    def add_tokens(self, count: int, now: float, occupancy: float) -> None:
        """Count generated tokens; `occupancy` is the share of slots in use."""
        self._taken += occupancy * (now - self._last)
        self._last = now
        self._tokens += count

    def add_outcome(self, outcome: Outcome) -> None:
        """Count a finished row."""
        self.tally.add(outcome)

    @property
    def done(self) -> int:
        """Number of finished rows, including earlier runs."""
        return self.before + self.tally.rows

    @property
    def failed(self) -> int:
        """Number of failed rows, including earlier runs."""
        return self._failed_before + self.tally.failed

    @property
    def share(self) -> float:
        """Fraction of the rows that is finished."""
        return self.done / self._total if self._total else 1.0

    def rates(self, now: float) -> dict[str, Any]:
        """Return rows and tokens per second of this process, the seconds left, and the mean occupancy."""
        seconds = max(0.0, now - self._start)
        rows = self.tally.rows / seconds if seconds > 0 else 0.0
        return {
            "seconds": seconds,
            "rows_per_second": rows,
            "tokens_per_second": self._tokens / seconds if seconds > 0 else 0.0,
            "seconds_left": (self._total - self.done) / rows if rows else None,
            "occupancy": self._taken / (self._last - self._start) if self._last > self._start else 0.0,
        }

    def line(self, now: float) -> str:
        """Return the progress as one line."""
        rates = self.rates(now)
        left = "" if rates["seconds_left"] is None else f"{clock(rates['seconds_left'])} left, "
        speed = f"{rates['rows_per_second']:.1f} rows/s, {rates['tokens_per_second']:,.0f} tok/s"
        done = f"{self.done:,} of {counted(self._total, 'row')}"
        line = f"{done}, {speed}, {left}{rates['occupancy']:.0%} full"
        return f"{line}, {self.failed:,} failed" if self.failed else line


_SHOWN = 5  # messages of errors shown


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """The result of a run. `rows`: all rows of the batch. `done`: rows with a result or an error.

    Tokens, reasons, errors and speed count this run only; `resumed` rows were finished before it. `status` is
    complete, interrupted, or stopped (too many errors). Prompt tokens count once for all samples of a prompt;
    each was read by the model or copied from the prefix cache. `drafts` counts forward passes, proposed and
    accepted draft tokens, and tokens of rows with a drafter. `error_messages`: the most frequent ones.
    """

    status: str
    rows: int
    done: int
    succeeded: int
    failed: int
    resumed: int
    prompt_tokens: int
    prompt_tokens_read: int
    prompt_tokens_copied: int
    completion_tokens: int
    finish_reasons: Mapping[str, int]
    errors: Mapping[str, int]
    seconds: float
    rows_per_second: float
    tokens_per_second: float
    occupancy: float
    max_batch: int
    seed: int
    model: str
    output: str
    drafts: Mapping[str, int] | None = None
    error_messages: Sequence[ErrorCount] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `summary` writes to a file."""
        return asdict(self)

    @property
    def counts(self) -> str:
        """The numbers of rows, as text."""
        resumed = f", {self.resumed:,} from before" if self.resumed else ""
        counts = f"{self.succeeded:,} succeeded, {self.failed:,} failed"
        return f"{self.done:,} of {counted(self.rows, 'row')}{resumed}: {counts}"

    def lines(self) -> Iterator[str]:
        """Yield the lines for a person."""
        speed = f"{self.rows_per_second:.1f} rows/s, {self.tokens_per_second:,.0f} tok/s"
        yield (
            f"{self.counts}, {counted(self.completion_tokens, 'token')} in {clock(self.seconds)} "
            f"({speed}, {self.occupancy:.0%} full), seed {self.seed}"
        )
        if self.prompt_tokens_copied:
            copied = counted(self.prompt_tokens_copied, "token")
            yield f"Prompts: {copied} copied from the prefix cache, {self.prompt_tokens_read:,} read."
        yield from self.error_lines()
        if self.drafts:
            proposed, accepted = self.drafts["proposed"], self.drafts["accepted"]
            tokens = self.drafts["tokens"] / max(1, self.drafts["forwards"])
            yield f"Drafts: {accepted:,} of {proposed:,} accepted, {tokens:.2f} tokens a forward."
        if count := self.finish_reasons.get("length"):
            texts = counted(count, "text was", "texts were")
            yield f"{texts} cut at a limit; `matched` in the results names the limit."

    def error_lines(self) -> Iterator[str]:
        """Yield the most frequent errors with their message and first row."""
        shown = self.error_messages[:_SHOWN]
        for error in shown:
            yield f"{error.count:,} {error.type}, first in row {error.first_row}: {error.message}"
        if count := sum(self.errors.values()) - sum(error.count for error in shown):
            one = "more error with another message; `error` in the results has it."
            yield counted(count, one, "more errors with other messages; `error` in the results has them.")


class BatchReporter(Reporter, Protocol):
    """Interface for the messages of a batch, and for signals that end it."""

    def watch(self, progress: Progress, engine: RowEngine) -> AbstractContextManager[Callable[[], None]]:
        """Return a context in which rows run; its value is called after each step to show the progress."""

    def on_interrupt(self, stop: Callable[[], None] | None) -> None:
        """Call `stop` at the next termination signal; with None the signal ends the process."""

    def say_always(self, text: str) -> None:
        """Report a line even in a quiet run."""
