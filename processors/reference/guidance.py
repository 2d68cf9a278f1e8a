"""Reference of classifier-free guidance and contrastive decoding, on one row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from processors.reference.samplers import log_sum_exp

__all__ = ["fold"]


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
