"""The summary of a batch: lines for a person, and an object for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gencli.batch.progress import ErrorCount
from gencli.units import clock

__all__ = ["Summary"]

_SHOWN = 5  # messages of errors shown


@dataclass(frozen=True, slots=True)
class Summary:
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

    def lines(self) -> Iterator[str]:
        """Yield the lines for a person."""
        resumed = f", {self.resumed:,} from before" if self.resumed else ""
        speed = f"{self.rows_per_second:.1f} rows/s, {self.tokens_per_second:,.0f} tok/s"
        yield (
            f"{self.done:,} of {self.rows:,} rows{resumed}: {self.succeeded:,} succeeded, "
            f"{self.failed:,} failed, {self.completion_tokens:,} tokens in {clock(self.seconds)} "
            f"({speed}, {self.occupancy:.0%} full), seed {self.seed}"
        )
        if self.prompt_tokens_copied:
            yield (
                f"Prompts: {self.prompt_tokens_copied:,} tokens copied from the prefix cache, "
                f"{self.prompt_tokens_read:,} read."
            )
        yield from self.error_lines()
        if self.drafts:
            made, stood = self.drafts["proposed"], self.drafts["accepted"]
            each = self.drafts["tokens"] / max(1, self.drafts["forwards"])
            yield f"Drafts: {stood:,} of {made:,} accepted, {each:.2f} tokens a forward."
        if self.finish_reasons.get("length"):
            count = self.finish_reasons["length"]
            yield f"{count:,} texts were cut at a limit; `matched` in the results names the limit."

    def error_lines(self) -> Iterator[str]:
        """Yield the most frequent errors with their message and first row."""
        shown = self.error_messages[:_SHOWN]
        for error in shown:
            yield f"{error.count:,} {error.type}, first in row {error.first_row}: {error.message}"
        if rest := sum(self.errors.values()) - sum(error.count for error in shown):
            yield f"{rest:,} more errors with other messages; `error` in the results has them."
