"""Totals of token log-probabilities: perplexities, bits per byte, and their standard error."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Totals", "count_words", "shown"]


def count_words(text: str) -> int:
    """Return the number of words as defined by lm-evaluation-harness: parts between white space."""
    return len(re.split(r"\s+", text))


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over scored tokens: log-probabilities and their squares (natural logarithm).

    `tokens`: number of tokens with a probability; `possible`: sum of their log-probabilities. `banned`:
    number of further, impossible tokens; if there are any, values derived from the whole sum are None.
    `num_bytes`, `words`: size of the scored text; `words` is None if the convention scores parts of words.
    """

    tokens: int = 0
    possible: float = 0.0
    squares: float = 0.0
    num_bytes: int = 0
    words: int | None = 0
    banned: int = 0

    @classmethod
    def of(cls, logprobs: Iterable[float], *, num_bytes: int, words: int | None) -> Totals:
        """Return the totals of the scored tokens with these log-probabilities."""
        values = [*logprobs]
        known = [value for value in values if value > -math.inf]
        return cls(
            len(known),
            math.fsum(known),
            math.fsum(value * value for value in known),
            num_bytes,
            words,
            len(values) - len(known),
        )

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.tokens + other.tokens,
            self.possible + other.possible,
            self.squares + other.squares,
            self.num_bytes + other.num_bytes,
            None if self.words is None or other.words is None else self.words + other.words,
            self.banned + other.banned,
        )

    @property
    def logprob(self) -> float | None:
        """Log-probability of all tokens; None if one of them is banned."""
        return None if self.banned else self.possible

    @property
    def nll(self) -> float | None:
        """Mean negative log-probability of a token; None without tokens."""
        return None if self.logprob is None or not self.tokens else -self.logprob / self.tokens

    @property
    def perplexity(self) -> float | None:
        """exp of `nll`."""
        return _exp(self.nll)

    @property
    def perplexity_error(self) -> float | None:
        """Standard error: perplexity * sqrt((E[nll ** 2] - nll ** 2) / (tokens - 1)), as llama-perplexity."""
        nll, perplexity = self.nll, self.perplexity
        if nll is None or perplexity is None or self.tokens < 2:
            return None
        variance = max(0.0, self.squares / self.tokens - nll * nll)
        return perplexity * math.sqrt(variance / (self.tokens - 1))

    @property
    def word_perplexity(self) -> float | None:
        """exp(-logprob / words); None if the number of words is unknown."""
        return None if self.logprob is None or not self.words else _exp(-self.logprob / self.words)

    @property
    def byte_perplexity(self) -> float | None:
        """exp(-logprob / bytes)."""
        return None if self.logprob is None or not self.num_bytes else _exp(-self.logprob / self.num_bytes)

    @property
    def bits_per_byte(self) -> float | None:
        """-logprob / (bytes * ln 2)."""
        if self.logprob is None or not self.num_bytes:
            return None
        return -self.logprob / (self.num_bytes * math.log(2))

    def record(self) -> dict[str, Any]:
        """Return the totals as JSON; `of_record` reads them back."""
        return {
            "scored": self.tokens,
            "bytes": self.num_bytes,
            "words": self.words,
            "logprob": self.logprob,
            "nll": self.nll,
            "perplexity": self.perplexity,
            "perplexity_error": self.perplexity_error,
            "word_perplexity": self.word_perplexity,
            "byte_perplexity": self.byte_perplexity,
            "bits_per_byte": self.bits_per_byte,
            "squares": self.squares,
            **({"banned": self.banned, "possible": self.possible} if self.banned else {}),
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Totals:
        """Return the totals of a record."""
        possible = record["possible"] if record.get("banned") else record["logprob"]
        return cls(
            record["scored"],
            possible,
            record["squares"],
            record["bytes"],
            record["words"],
            record.get("banned", 0),
        )


def _exp(value: float | None) -> float | None:
    """Return exp(value); None if it is not finite."""
    try:
        return None if value is None else math.exp(value)
    except OverflowError:
        return None


def shown(value: float | None) -> str:
    """Return a number of a score as text for a person; "-" for None."""
    return "-" if value is None else f"{value:.4f}"
