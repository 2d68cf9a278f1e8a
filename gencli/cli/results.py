"""What a run has produced so far, gathered from its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gencli.events import Error, Event, Finish, Token

__all__ = ["Outcome", "Results", "Row", "tokens_per_second"]

Outcome = Finish | Error


@dataclass(slots=True)
class Row:
    """A prompt, and for each of its samples the text so far and how it ended."""

    id: str
    prompt: str
    texts: list[str]
    outcomes: list[Outcome | None]

    @property
    def is_done(self) -> bool:
        """Whether every sample has ended."""
        return all(outcome is not None for outcome in self.outcomes)

    @property
    def ended(self) -> list[Outcome]:
        """The outcomes that there are."""
        return [outcome for outcome in self.outcomes if outcome is not None]

    @property
    def finishes(self) -> list[Finish]:
        """The samples that did not fail."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, Finish)]


class Results:
    """The rows of a run, in the order of the prompts."""

    def __init__(self, prompts: Sequence[str], num_samples: int) -> None:
        self.rows = [
            Row(str(number), prompt, [""] * num_samples, [None] * num_samples)
            for number, prompt in enumerate(prompts, start=1)
        ]
        self._by_id = {row.id: row for row in self.rows}

    def row(self, request: str) -> Row:
        """The row of a request."""
        return self._by_id[request]

    def add(self, event: Event) -> Row:
        """Take note of an event; the row it belongs to."""
        row = self._by_id[event.request]
        if isinstance(event, Token):
            row.texts[event.sample] += event.text
        else:
            row.texts[event.sample] = event.text
            row.outcomes[event.sample] = event
        return row

    @property
    def finishes(self) -> list[Finish]:
        """All samples that did not fail."""
        return [finish for row in self.rows for finish in row.finishes]

    @property
    def errors(self) -> list[Error]:
        """All samples that failed."""
        return [outcome for row in self.rows for outcome in row.outcomes if isinstance(outcome, Error)]

    @property
    def exit_code(self) -> int:
        """130 if interrupted, 6 if all failed, 7 if some did, else 0."""
        if any(finish.reason == "interrupted" for finish in self.finishes):
            return 130
        if not self.errors:
            return 0
        return 7 if self.finishes else 6


def tokens_per_second(finishes: Sequence[Finish]) -> float | None:
    """Decoding speed of samples that were submitted together.

    Tokens after the first of each, over the time from the first token of all to the last.
    """
    tokens = sum(max(0, finish.completion_tokens - 1) for finish in finishes)
    if not tokens:
        return None
    times = [finish.timings for finish in finishes]
    seconds = max(t.first_token + t.decode for t in times) - min(t.first_token for t in times)
    return tokens / seconds if seconds > 0 else None
