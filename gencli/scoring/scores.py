"""Results of scoring, each with its convention, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gencli.core.events import TokenLogprobs
from gencli.results.scores import entry_record
from gencli.scoring.totals import Totals
from gencli.scoring.windows import Convention
from gencli.text.tokenizer import Tokenizer

__all__ = ["ChoiceScore", "PairScore", "Score", "TextScore", "score_record"]


@dataclass(frozen=True, slots=True)
class TextScore:
    """Score of a text of `tokens` tokens. `entries` are those of the scored tokens, in order."""

    tokens: int
    totals: Totals
    convention: Convention
    entries: tuple[TokenLogprobs, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class PairScore:
    """Score of a continuation behind a context; `is_greedy`: every token is the most likely one."""

    text: str
    logprob: float
    tokens: int
    is_greedy: bool
    totals: Totals
    convention: Convention
    entries: tuple[TokenLogprobs, ...] = field(default=(), repr=False)

    @property
    def per_token(self) -> float:
        """Log-probability divided by the number of tokens."""
        return self.logprob / max(1, self.tokens)

    @property
    def per_character(self) -> float:
        """Log-probability divided by the number of characters."""
        return self.logprob / len(self.text)

    @property
    def per_byte(self) -> float:
        """Log-probability divided by the number of UTF-8 bytes."""
        return self.logprob / len(self.text.encode())


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """Scores of the choices behind one context.

    `unconditional` are their log-probabilities without the context; None if the model has no prefix token.
    """

    choices: tuple[PairScore, ...]
    unconditional: tuple[float, ...] | None
    convention: Convention

    @property
    def best(self) -> dict[str, int]:
        """Index of the best choice by each measure; of equal ones the first.

        sum, token, character, byte: the log-probability, divided by that length. unconditional: less the
        log-probability without the context (mutual information).
        """
        found = {
            "sum": [one.logprob for one in self.choices],
            "token": [one.per_token for one in self.choices],
            "character": [one.per_character for one in self.choices],
            "byte": [one.per_byte for one in self.choices],
        }
        if self.unconditional is not None:
            pairs = zip(self.choices, self.unconditional, strict=True)
            found["unconditional"] = [one.logprob - alone for one, alone in pairs]
        return {name: values.index(max(values)) for name, values in found.items()}

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probability of each choice, if one of them has to be: softmax of the sums."""
        top = max(one.logprob for one in self.choices)
        weights = [math.exp(one.logprob - top) for one in self.choices]
        return tuple(weight / sum(weights) for weight in weights)


Score = TextScore | PairScore | ChoiceScore


def score_record(score: Score, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """Return a score as JSON; `tokenizer` adds a row for each scored token."""
    convention = {"convention": score.convention.record(), "mode": "raw"}
    if isinstance(score, ChoiceScore):
        alone = score.unconditional or (None,) * len(score.choices)
        rows = zip(score.choices, score.probabilities, alone, strict=True)
        choices = [
            {**_pair(one, tokenizer), "unconditional": without, "prob": probability}
            for one, probability, without in rows
        ]
        return {"choices": choices, "best": score.best, **convention}
    if isinstance(score, PairScore):
        return {**_pair(score, tokenizer), **convention}
    found = {"tokens": score.tokens, **score.totals.record(), **convention}
    return found | _rows(score.entries, tokenizer)


def _pair(score: PairScore, tokenizer: Tokenizer | None) -> dict[str, Any]:
    found = {
        "text": score.text,
        "logprob": score.logprob,
        "tokens": score.tokens,
        "per_token": score.per_token,
        "per_character": score.per_character,
        "per_byte": score.per_byte,
        "greedy": score.is_greedy,
    }
    return found | _rows(score.entries, tokenizer)


def _rows(entries: Sequence[TokenLogprobs], tokenizer: Tokenizer | None) -> dict[str, Any]:
    return {} if tokenizer is None else {"token_scores": [entry_record(one, tokenizer) for one in entries]}
