"""Reference of contrastive search, for the candidates of one step."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["contrastive_scores"]

_State = Sequence[float]


def contrastive_scores(
    probabilities: Sequence[float], states: Sequence[_State], before: Sequence[_State], alpha: float
) -> list[float]:
    """Return (1 - alpha) p - alpha max_j cos(h, h_j) of each candidate with probability p and state h."""
    return [
        (1 - alpha) * p - alpha * max(_cosine(state, other) for other in before)
        for p, state in zip(probabilities, states, strict=True)
    ]


def _cosine(one: _State, other: _State) -> float:
    size = math.hypot(*one) * math.hypot(*other)
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) / size if size else 0.0
