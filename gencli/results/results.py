"""Results of a run so far, collected from its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gencli.core.events import Error, Event, Finish, Token
from gencli.results.by_token import ByToken, token_ids
from gencli.results.scores import Scores
from processors.errors import StageFailure

__all__ = ["LATE", "Failure", "Outcome", "Results", "Row", "failure", "num_samples", "tokens_per_second"]

LATE = "`max_time` passed before the first token."

Outcome = Finish | Error


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample without a result, and the reason."""

    request: str
    sample: int
    type: str
    message: str


@dataclass(slots=True)
class Row:
    """A prompt with the text so far and the outcome of each sample.

    Samples that had not begun have one outcome, that of the first of them (see `Finish.more`).
    `is_partial`: whether invalid texts are shown. `running`: samples with text but no outcome yet.
    `num_open`: number of samples without an outcome. `prompt_ids`: token ids of the prompt, () if it was
    refused before they were known.
    """

    id: str
    prompt: str
    texts: list[str]
    outcomes: list[Outcome | None]
    is_partial: bool = True
    running: set[int] = field(default_factory=set)
    num_open: int = field(init=False)
    scores: Scores = field(default_factory=Scores)
    ids: ByToken[int] = field(default_factory=token_ids)
    prompt_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.num_open = len(self.outcomes)

    @property
    def is_done(self) -> bool:
        """Whether every sample has ended."""
        return not self.num_open

    def add(self, event: Event) -> None:
        """Add an event of one of the samples."""
        self.scores.add(event)
        self.ids.add(event)
        if isinstance(event, Token):
            self.texts[event.sample] += event.text
            self.running.add(event.sample)
            return
        if not isinstance(event, Finish | Error):
            return
        self.texts[event.sample] = event.text
        self.outcomes[event.sample] = event
        self.running.discard(event.sample)
        self.num_open -= num_samples(event)

    @property
    def ended(self) -> list[Outcome]:
        """The outcomes so far."""
        return [outcome for outcome in self.outcomes if outcome is not None]

    @property
    def finishes(self) -> list[Finish]:
        """The samples that did not fail."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, Finish)]

    def shown(self, sample: int) -> str | None:
        """Return the output of a finished sample; None if it is invalid and hidden, or has not begun."""
        outcome = self.outcomes[sample]
        if isinstance(outcome, Finish) and outcome.reason == "interrupted" and not outcome.completion_tokens:
            return None
        verdict = outcome.verdict if isinstance(outcome, Finish) else None
        is_late = isinstance(outcome, Finish) and outcome.is_late
        is_result = verdict.is_valid if verdict else isinstance(outcome, Finish)
        if is_late or (not is_result and not self.is_partial):
            return None
        return verdict.written if verdict else self.texts[sample]


class Results:
    """The rows of a run, in the order of the prompts.

    `is_partial`: whether texts of failed samples are shown.
    """

    def __init__(self, prompts: Sequence[str], num_samples: int, *, is_partial: bool = True) -> None:
        self.rows = [
            Row(str(number), prompt, [""] * num_samples, [None] * num_samples, is_partial)
            for number, prompt in enumerate(prompts, start=1)
        ]
        self._by_id = {row.id: row for row in self.rows}

    def row(self, request: str) -> Row:
        """Return the row of a request."""
        return self._by_id[request]

    def add(self, event: Event) -> Row:
        """Add an event; return its row."""
        row = self._by_id[event.request]
        row.add(event)
        return row

    @property
    def finishes(self) -> list[Finish]:
        """All samples that did not fail."""
        return [finish for row in self.rows for finish in row.finishes]

    @property
    def failures(self) -> list[Failure]:
        """All samples without a result."""
        found = [(failure(outcome), outcome) for row in self.rows for outcome in row.ended]
        return [
            replace(failed, sample=failed.sample + more)
            for failed, outcome in found
            if failed is not None
            for more in range(num_samples(outcome))
        ]

    @property
    def exit_code(self) -> int:
        """130 if interrupted, 6 if all failed (4 if all by a plug-in), 7 if some did, else 0."""
        if any(finish.reason == "interrupted" for finish in self.finishes):
            return 130
        if not self.failures:
            return 0
        if len(self.failures) < sum(len(row.outcomes) for row in self.rows):
            return 7
        return 4 if all(failed.type == StageFailure.__name__ for failed in self.failures) else 6


def num_samples(outcome: Outcome) -> int:
    """Return the number of samples that have this outcome."""
    return 1 + (outcome.more if isinstance(outcome, Finish) else 0)


def failure(outcome: Outcome) -> Failure | None:
    """Return the reason why a sample has no result; None if it has one."""
    if isinstance(outcome, Error):
        return Failure(outcome.request, outcome.sample, outcome.type, outcome.message)
    if outcome.verdict is None:
        return Failure(outcome.request, outcome.sample, "Timeout", LATE) if outcome.is_late else None
    if outcome.verdict.is_valid:
        return None
    tried = f" ({outcome.verdict.attempts} attempts)" if outcome.verdict.attempts > 1 else ""
    message = f"The output is not valid{tried}: {'; '.join(outcome.verdict.faults).rstrip('.')}."
    return Failure(outcome.request, outcome.sample, "InvalidOutput", message)


def tokens_per_second(finishes: Sequence[Finish]) -> float | None:
    """Return the decoding speed of samples submitted together, in tokens per second; None if too few tokens.

    (number of tokens - one per sample) / (time from the first token of all samples to the last).
    """
    tokens = sum(max(0, finish.completion_tokens - 1) for finish in finishes)
    if not tokens:
        return None
    times = [finish.timings for finish in finishes]
    seconds = max(t.first_token + t.decode for t in times) - min(t.first_token for t in times)
    return tokens / seconds if seconds > 0 else None
