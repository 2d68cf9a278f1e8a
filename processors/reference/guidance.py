"""Reference of classifier-free guidance, contrastive decoding and DoLa, on one row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from processors.reference.samplers import log_sum_exp

__all__ = ["contrast_layers", "fold"]


def fold(
    logits: Sequence[float], companion: Sequence[float], scale: float, cutoff: float = 0.0
) -> list[float]:
    """Return u + s (c - u) over log-probabilities; -inf where either is -inf or c is below the cutoff."""
    total, other_total = log_sum_exp(logits), log_sum_exp(companion)
    c, u = [x - total for x in logits], [x - other_total for x in companion]
    least = max(c) + math.log(cutoff) if cutoff else -math.inf
    return [
        -math.inf if -math.inf in (a, b) or a < least else b + scale * (a - b)
        for a, b in zip(c, u, strict=True)
    ]


def contrast_layers(
    logits: Sequence[float], early: Sequence[Sequence[float]], cutoff: float = 0.0
) -> list[float]:
    """Return c - u, u of the early layer that is farthest from c by Jensen-Shannon divergence."""
    c, *layers = ([x - log_sum_exp(row) for x in row] for row in (logits, *early))
    u = max(layers, key=lambda layer: _divergence(c, layer), default=[0.0] * len(c))
    least = max(c) + math.log(cutoff) if cutoff else -math.inf
    return [-math.inf if a == -math.inf or a < least else a - b for a, b in zip(c, u, strict=True)]


def _divergence(one: Sequence[float], other: Sequence[float]) -> float:
    pairs = [(math.exp(a), math.exp(b)) for a, b in zip(one, other, strict=True)]
    return math.fsum(
        p / 2 * math.log(2 * p / (p + q) if p else 1) + q / 2 * math.log(2 * q / (p + q) if q else 1)
        for p, q in pairs
    )
