"""Measures of drawn texts: of their distributions, and of the texts themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gencli.core.events import Error, Finish, Token
from gencli.results.run_results import LATE
from processors.explain.view import RowView

__all__ = ["MEASURES", "Sample", "TextMeter", "distinct", "mean_of", "repetition"]

# The measures of a text, with their units and meanings.
MEASURES: dict[str, str] = {
    "tokens": "length of the text",
    "entropy": "of the distribution that was drawn from, in nats, mean over tokens",
    "alive": "tokens left to draw from, mean",
    "decided": "share of tokens that a stage decided",
    "surprise": "-log2 p under the model, bits, mean",
    "logprob": "log-probability of the text under the model, nats, sum",
    "distinct_1": "different tokens, as a share of all",
    "distinct_2": "different pairs of tokens, as a share of all",
    "distinct_3": "different runs of three tokens, as a share of all",
    "repetition": "1 - different runs of four tokens, as a share of all (Welleck et al. 2020, seq-rep-4)",
    "valid": "share of texts that are valid by the schema",
}


def distinct(ids: Sequence[int], size: int) -> float | None:
    """Return (number of different n-grams of `size` tokens) / (number of n-grams); None for a shorter text.

    Li et al. 2016, A Diversity-Promoting Objective Function for Neural Conversation Models (distinct-n).
    """
    count = len(ids) - size + 1
    return len({tuple(ids[at : at + size]) for at in range(count)}) / count if count > 0 else None


def repetition(ids: Sequence[int]) -> float | None:
    """Return seq-rep-4 of Welleck et al. 2020: 1 - distinct-4; None for fewer than 4 tokens."""
    found = distinct(ids, 4)
    return None if found is None else 1 - found


@dataclass(frozen=True, slots=True)
class Sample:
    """One text of a cell: why it ended, and its measures by name; None if a measure is undefined."""

    prompt: int
    sample: int
    text: str
    reason: str
    measures: dict[str, float | None]
    error: str = ""


@dataclass(slots=True)
class TextMeter:
    """Accumulates the explained tokens of one sample until its end."""

    prompt: int
    sample: int
    ids: list[int] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)
    bits: list[float] = field(default_factory=list)
    decided: int = 0

    def add(self, event: Token) -> None:
        """Add the tokens of an event."""
        self.ids.extend(event.ids)
        for view in event.views:
            self.see(view)

    def see(self, view: RowView) -> None:
        """Add an explained token."""
        self.entropies.append(view.final.entropy)
        self.alive.append(view.final.alive)
        self.bits.append(view.surprise)
        self.decided += bool(view.decided_by)

    def measures(self) -> dict[str, float | None]:
        """Return the measures so far, without `valid`."""
        count = len(self.bits)
        return {
            "tokens": len(self.ids),
            "entropy": mean_of(self.entropies),
            "alive": mean_of(self.alive),
            "decided": self.decided / count if count else None,
            "surprise": mean_of(self.bits),
            "logprob": -math.fsum(self.bits) * math.log(2) if count else None,
            **{f"distinct_{size}": distinct(self.ids, size) for size in (1, 2, 3)},
            "repetition": repetition(self.ids),
            "valid": None,
        }

    def end(self, event: Finish | Error) -> Sample:
        """Return the finished sample."""
        if isinstance(event, Error):
            return Sample(self.prompt, self.sample, event.text, "error", self.measures(), event.message)
        valid = None if event.verdict is None else float(event.verdict.is_valid)
        error = LATE if event.is_late else ""
        measures = {**self.measures(), "valid": valid}
        return Sample(self.prompt, self.sample, event.text, event.reason, measures, error)


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None if there are none."""
    found = [value for value in values if value is not None]
    return math.fsum(found) / len(found) if found else None
