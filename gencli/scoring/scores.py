"""Results of scoring with their convention and mode, and their JSON form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gencli.core.events import TokenLogprobs
from gencli.results.scores import entry_record
from gencli.scoring.totals import Totals
from gencli.scoring.windows import Convention
from gencli.text.tokenizer import Tokenizer

__all__ = ["MODES", "ChoiceScore", "PairScore", "Score", "TextScore", "score_record"]

MODES = Literal["raw", "processed"]


@dataclass(frozen=True, slots=True)
class TextScore:
    """Score of a text of `tokens` tokens. `entries`: log-probabilities of the scored tokens, in order."""

    tokens: int
    totals: Totals
    convention: Convention
    entries: tuple[TokenLogprobs, ...] = field(default=(), repr=False)
    mode: MODES = "raw"


@dataclass(frozen=True, slots=True)
class PairScore:
    """Score of a continuation after a context; `is_greedy`: every token is the most likely one.

    If a stage bans a token, `logprob` and all values derived from it are None.
    """

    text: str
    tokens: int
    is_greedy: bool
    totals: Totals
    convention: Convention
    entries: tuple[TokenLogprobs, ...] = field(default=(), repr=False)
    mode: MODES = "raw"

    @property
    def logprob(self) -> float | None:
        """Sum of the tokens' log-probabilities."""
        return self.totals.logprob

    @property
    def per_token(self) -> float | None:
        """Log-probability divided by the number of tokens."""
        return self._per(max(1, self.tokens))

    @property
    def per_character(self) -> float | None:
        """Log-probability divided by the number of characters."""
        return self._per(len(self.text))

    @property
    def per_byte(self) -> float | None:
        """Log-probability divided by the number of UTF-8 bytes."""
        return self._per(len(self.text.encode()))

    def _per(self, count: int) -> float | None:
        return None if self.logprob is None else self.logprob / count


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """Scores of the choices after one context.

    `unconditional`: log-probabilities of the choices without the context; None if the model has no prefix
    token.
    """

    choices: tuple[PairScore, ...]
    unconditional: tuple[float | None, ...] | None
    convention: Convention
    mode: MODES = "raw"

    @property
    def best(self) -> dict[str, int | None]:
        """Index of the best choice by each measure, ties by lowest index; None if all are banned.

        sum, token, character, byte: the log-probability, divided by that length. unconditional:
        log-probability minus that without the context (mutual information).
        """
        found: dict[str, list[float | None]] = {
            "sum": [one.logprob for one in self.choices],
            "token": [one.per_token for one in self.choices],
            "character": [one.per_character for one in self.choices],
            "byte": [one.per_byte for one in self.choices],
        }
        if self.unconditional is not None:
            pairs = zip(self.choices, self.unconditional, strict=True)
            found["unconditional"] = [_less(one.logprob, alone) for one, alone in pairs]
        return {name: _largest(values) for name, values in found.items()}

    @property
    def probabilities(self) -> tuple[float | None, ...]:
        """Probability of each choice, given that one of them occurs: softmax of the sums; 0 if banned."""
        known = [one.logprob for one in self.choices if one.logprob is not None]
        if not known:
            return (None,) * len(self.choices)
        weights = [0.0 if one.logprob is None else math.exp(one.logprob - max(known)) for one in self.choices]
        return tuple(weight / sum(weights) for weight in weights)


Score = TextScore | PairScore | ChoiceScore


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _largest(values: Sequence[float | None]) -> int | None:
    known = [value for value in values if value is not None]
    return values.index(max(known)) if known else None


def score_record(score: Score, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """Return a score as JSON; with a `tokenizer` it has a row for each scored token."""
    how = {"convention": score.convention.record(), "mode": score.mode}
    if isinstance(score, ChoiceScore):
        alone = score.unconditional or (None,) * len(score.choices)
        rows = zip(score.choices, score.probabilities, alone, strict=True)
        choices = [
            {**_pair(one, tokenizer), "unconditional": without, "prob": probability}
            for one, probability, without in rows
        ]
        return {"choices": choices, "best": score.best, **how}
    if isinstance(score, PairScore):
        return {**_pair(score, tokenizer), **how}
    found = {"tokens": score.tokens, **score.totals.record(), **how}
    return found | _rows(score.entries, tokenizer)


def _pair(score: PairScore, tokenizer: Tokenizer | None) -> dict[str, Any]:
    found = {
        "text": score.text,
        "tokens": score.tokens,
        **score.totals.record(),
        "per_token": score.per_token,
        "per_character": score.per_character,
        "per_byte": score.per_byte,
        "greedy": score.is_greedy,
    }
    return found | _rows(score.entries, tokenizer)


def _rows(entries: Sequence[TokenLogprobs], tokenizer: Tokenizer | None) -> dict[str, Any]:
    return {} if tokenizer is None else {"token_scores": [entry_record(one, tokenizer) for one in entries]}
