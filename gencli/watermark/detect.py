"""Tests whether a text has a watermark: the whole text, and its most suspicious window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from gencli.watermark.evidence import Evidence, Scorer

__all__ = ["LEAST_SCORED", "LEVEL", "Detection", "Verdict", "Window", "detect"]

LEVEL = 0.001  # rate of false alarms
LEAST_SCORED = 16  # minimum of scored tokens for a verdict
_STEPS = 4  # windows are shifted by a quarter of their size

Verdict = Literal["marked", "not marked", "not enough tokens"]


@dataclass(frozen=True, slots=True)
class Window:
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
    window: Window | None = None

    @property
    def p_value(self) -> float:
        """The probability that an unmarked text looks at least as marked as this one; 0 below 1e-308."""
        return math.exp(self.ln_p)


def detect(
    scorer: Scorer, ids: Sequence[int], *, level: float = LEVEL, window: int | None = None
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


def _best_window(scorer: Scorer, evidence: Evidence, size: int) -> Window:
    sums = [0.0, *accumulate(evidence.values)]
    last = len(evidence.values) - size
    starts = sorted({*range(0, last, max(1, size // _STEPS)), last})
    found = [(scorer.ln_p(sums[start + size] - sums[start], size), start) for start in starts]
    ln_p, start = min(found)
    places = evidence.places
    corrected = min(0.0, ln_p + math.log(len(starts)))
    return Window(size, len(starts), places[start], places[start + size - 1] + 1, corrected)
