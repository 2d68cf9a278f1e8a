"""The progress of a batch: counts of tokens and outcomes, and a status line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gencli.batch.records import Outcome
from gencli.batch.samples import samples_of
from gencli.units import clock

__all__ = ["ErrorCount", "Progress", "Tally"]

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
class Tally:
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
        if key not in self.messages and len(self.messages) == _MAX_MESSAGES:
            return
        entry = self.messages.setdefault(key, ErrorCount(*key, 0, row))
        entry.count += 1
        entry.first_row = min(entry.first_row, row)


class Progress:
    """Counts the work of this process from `start` on. Times are seconds of a monotonic clock.

    `before`: rows finished by earlier runs; `failed_before`: how many of them failed.
    """

    def __init__(self, total: int, *, before: int = 0, failed_before: int = 0) -> None:
        self.tally = Tally()
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
        left = rates["seconds_left"]
        parts = [
            f"{self.done:,} of {self._total:,} rows",
            f"{rates['rows_per_second']:.1f} rows/s",
            f"{rates['tokens_per_second']:,.0f} tok/s",
            *([] if left is None else [f"{clock(left)} left"]),
            f"{rates['occupancy']:.0%} full",
            *([f"{self.failed:,} failed"] if self.failed else []),
        ]
        return ", ".join(parts)
