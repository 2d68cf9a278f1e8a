"""Tests whether a text has a watermark, the whole text and its most suspicious window: evidence of each
token, and the probability of such evidence in an unmarked text.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Literal

import torch
from torch import Tensor

from gencli.tail_probabilities import ln_binomial_tail, ln_gamma_tail, ln_normal_tail
from processors.params import Params
from processors.rng import Green, Tournament, derived_key, signed, state_of, uniforms
from processors.stages.watermarks import GumbelMarkParams, KgwParams, SynthIdParams

LEVEL = 0.001  # rate of false alarms
LEAST_SCORED = 16  # minimum of scored tokens for a verdict
_STEPS = 4  # windows are shifted by a quarter of their size

Verdict = Literal["marked", "not marked", "not enough tokens"]


@dataclass(frozen=True, slots=True)
class SuspiciousWindow:
    """The most suspicious window: tokens start to end (exclusive), of `count` windows.

    `ln_p` is corrected for the number of windows: it is an upper bound of ln of the probability that an
    unmarked text has any window as suspicious as this one.
    """

    size: int
    count: int
    start: int
    end: int
    ln_p: float


@dataclass(frozen=True, slots=True)
class Detection:
    """Result of a detector. `ln_p` is ln of the whole text's p-value, 0 without scored tokens."""

    verdict: Verdict
    tokens: int
    scored: int
    ln_p: float
    facts: dict[str, float]
    window: SuspiciousWindow | None = None

    @property
    def p_value(self) -> float:
        """The probability that an unmarked text looks at least as marked as this one; 0 below 1e-308."""
        return math.exp(self.ln_p)


def detect(
    scorer: WatermarkScorer, ids: Sequence[int], *, level: float = LEVEL, window: int | None = None
) -> Detection:
    """Return whether the text of these ids has the watermark of the scorer.

    A text is marked if its p-value is at most `level`. With `window`, a number of scored tokens, the p-value
    of the most suspicious window decides.
    """
    evidence = scorer.evidence(ids)
    scored = len(evidence.values)
    if scored == 0:
        return Detection("not enough tokens", len(ids), 0, 0.0, {})
    ln_p = scorer.ln_p(sum(evidence.values), scored)
    best = _best_window(scorer, evidence, window) if window is not None and window < scored else None
    verdict: Verdict = "marked" if (best.ln_p if best else ln_p) <= math.log(level) else "not marked"
    if scored < LEAST_SCORED:
        verdict = "not enough tokens"
    return Detection(verdict, len(ids), scored, ln_p, scorer.facts(evidence), best)


def _best_window(scorer: WatermarkScorer, evidence: Evidence, size: int) -> SuspiciousWindow:
    sums = [0.0, *accumulate(evidence.values)]
    last = len(evidence.values) - size
    starts = sorted({*range(0, last, max(1, size // _STEPS)), last})
    windows = [(scorer.ln_p(sums[start + size] - sums[start], size), start) for start in starts]
    ln_p, start = min(windows)
    positions = evidence.places
    corrected = min(0.0, ln_p + math.log(len(starts)))
    return SuspiciousWindow(size, len(starts), positions[start], positions[start + size - 1] + 1, corrected)


_CHUNK = 4096  # tokens whose numbers are computed at once


@dataclass(frozen=True, slots=True)
class Evidence:
    """Ascending positions of scored tokens and values, larger in a marked text; `plain` are only reported."""

    places: tuple[int, ...]
    values: tuple[float, ...]
    plain: tuple[float, ...] = ()


class WatermarkScorer(ABC):
    """Scores the tokens of a text for one watermark and key."""

    @abstractmethod
    def evidence(self, ids: Sequence[int]) -> Evidence:
        """Return the evidence of a text; repeated n-grams prove nothing and are left out."""

    @abstractmethod
    def ln_p(self, total: float, count: int) -> float:
        """Return ln of the probability that `count` unmarked tokens have at least this sum of values."""

    @abstractmethod
    def facts(self, evidence: Evidence) -> dict[str, float]:
        """Return the statistics of the literature, by name; requires a scored token."""


class KgwScorer(WatermarkScorer):
    """Counts green tokens. `vocab` is the number of logits of the model that may have made the text.

    With `is_once` an n-gram counts once, otherwise at each occurrence.
    """

    def __init__(self, params: KgwParams, vocab: int, *, is_once: bool = True) -> None:
        self._green, self._is_once = Green(params, params.vocab or vocab), is_once
        self._size = params.width + (not self._green.is_self)

    def evidence(self, ids: Sequence[int]) -> Evidence:
        ngrams = [tuple(ids[end - self._size : end]) for end in range(self._size, len(ids) + 1)]
        kept = _first_indices(ngrams) if self._is_once else range(len(ngrams))
        is_green = {ngram: float(self._green.is_green(ngram)) for ngram in dict.fromkeys(ngrams)}
        places = tuple(index + self._size - 1 for index in kept)
        return Evidence(places, tuple(is_green[ngrams[index]] for index in kept))

    def ln_p(self, total: float, count: int) -> float:
        """Return ln p; without a mark the number of green tokens is binomially distributed."""
        return ln_binomial_tail(round(total), count, self._green.size / self._green.vocab)

    def facts(self, evidence: Evidence) -> dict[str, float]:
        """Return z and its normal p-value as transformers computes them, from the nominal ratio."""
        green, count, ratio = sum(evidence.values), len(evidence.values), self._green.params.ratio
        z = (green - ratio * count) / math.sqrt(count * ratio * (1 - ratio))
        return {"green": green, "z": z, "normal_p_value": math.exp(ln_normal_tail(z))}


class SynthIdScorer(WatermarkScorer):
    """Scores the mean of a token's bits, with weights falling from 10 to 1 over the depths."""

    def __init__(self, params: SynthIdParams, *, eos_ids: Sequence[int] = ()) -> None:
        self._rules = Tournament(params, torch.device("cpu"))
        self._width, self._eos_ids = params.ngram - 1, frozenset(eos_ids)
        weights = torch.linspace(10, 1, self._rules.depth, dtype=torch.float64)
        self._weights = weights / weights.sum()
        self._mean = float(self._rules.table.double().mean())

    def evidence(self, ids: Sequence[int]) -> Evidence:
        """Return the evidence, without tokens after a repeated context and from the first end of text on."""
        end = next((index for index, token in enumerate(ids) if token in self._eos_ids), len(ids))
        grams = [tuple(ids[index - self._width : index]) for index in range(self._width, end)]
        kept = _first_indices(grams, self._rules.params.history)
        if not kept:
            return Evidence((), ())
        context = self._rules.hashed(torch.tensor([grams[index] for index in kept]))
        targets = torch.tensor([ids[index + self._width] for index in kept])
        bits = self._rules.bits(context, targets)[:, None] >> torch.arange(self._rules.depth) & 1
        values, plain = bits.double() @ self._weights, bits.double().mean(1)
        return Evidence(tuple(index + self._width for index in kept), _floats(values), _floats(plain))

    def ln_p(self, total: float, count: int) -> float:
        """Return ln p; each bit is 1 with the table's frequency, so the weighted mean is nearly normal."""
        if not 0 < self._mean < 1:
            return 0.0
        spread = math.sqrt(self._mean * (1 - self._mean) * float(self._weights.square().sum()) * count)
        return ln_normal_tail((total - count * self._mean) / spread)

    def facts(self, evidence: Evidence) -> dict[str, float]:
        """Return the mean and the weighted mean of the bits, about 0.5 without a mark."""
        count = len(evidence.values)
        return {"mean": sum(evidence.plain) / count, "weighted_mean": sum(evidence.values) / count}


class GumbelScorer(WatermarkScorer):
    """Scores the sum of -ln(1 - u) over the tokens, Gamma distributed without a mark."""

    def __init__(self, params: GumbelMarkParams) -> None:
        assert params.key is not None
        (key,) = params.key.numbers
        self._width, alpha = params.width, params.alpha
        self._weights: dict[int, float] = {key: 1.0}  # of each key
        if alpha is not None:
            self._weights = {derived_key(key, "key_a"): 1 - alpha, derived_key(key, "key_b"): alpha}
        self._variance = sum(weight**2 for weight in self._weights.values())

    def evidence(self, ids: Sequence[int]) -> Evidence:
        padded = (*[-1] * self._width, *ids)
        contexts = [padded[index : index + self._width] for index in range(len(ids))]
        kept = _first_indices(contexts)
        values: list[float] = []
        for first in range(0, len(kept), _CHUNK):
            some = kept[first : first + _CHUNK]
            context = torch.tensor([contexts[index] for index in some])
            targets = torch.tensor([ids[index] for index in some])
            keys = (torch.full_like(targets, signed(key)) for key in self._weights)
            scores = (-torch.log1p(-uniforms(state_of(key, context), targets)) for key in keys)
            values += _floats(sum(map(mul, scores, self._weights.values())))
        return Evidence(tuple(kept), tuple(values))

    def ln_p(self, total: float, count: int) -> float:
        """Return ln p; with two keys of a Gamma variable with mean and variance of the weighted sum."""
        return ln_gamma_tail(total / self._variance, count / self._variance)

    def facts(self, evidence: Evidence) -> dict[str, float]:
        """Return the sum, which without a mark is about the number of tokens."""
        return {"score": sum(evidence.values)}


def scorer_of(params: Params, *, vocab: int, eos_ids: Sequence[int] = ()) -> WatermarkScorer:
    """Return the scorer for a watermark's parameters; `vocab`: number of logits of the model."""
    if isinstance(params, KgwParams):
        return KgwScorer(params, vocab)
    if isinstance(params, SynthIdParams):
        return SynthIdScorer(params, eos_ids=eos_ids)
    assert isinstance(params, GumbelMarkParams)
    return GumbelScorer(params)


def _first_indices(items: Sequence[tuple[int, ...]], history: int | None = None) -> list[int]:
    """Return the indices of items that do not occur among the `history` items before them; None means all."""
    last: dict[tuple[int, ...], int] = {}
    kept = []
    for index, item in enumerate(items):
        before = last.get(item)
        if before is None or (history is not None and index - before > history):
            kept.append(index)
        last[item] = index
    return kept


def _floats(values: Tensor | float) -> tuple[float, ...]:
    assert isinstance(values, Tensor)
    return tuple(values.tolist())
