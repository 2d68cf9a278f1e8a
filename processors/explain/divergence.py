"""Distances between two distributions over the same ids."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

__all__ = ["Divergence", "divergence"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Distances of the distributions p and q.

    `tv`: the total variation 1/2 sum |p - q|, from 0 to 1. `kl_ab`: sum p log2(p / q) in bits, infinite if
    some id has p > 0 and q = 0; `kl_ba`: the same with p and q exchanged.
    """

    tv: float
    kl_ab: float
    kl_ba: float


def divergence(a: Tensor, b: Tensor) -> Divergence:
    """Return the distances of the softmaxes of two rows of logits [V], each with an unmasked id."""
    p, q = a.double().log_softmax(-1), b.double().log_softmax(-1)
    tv = float((p.exp() - q.exp()).abs().sum()) / 2
    return Divergence(min(tv, 1.0), _bits(p, q), _bits(q, p))


def _bits(p: Tensor, q: Tensor) -> float:
    """Return sum p log2(p / q) of log-probabilities [V]; rounding never makes it negative."""
    weights = p.exp()
    has = weights > 0
    return max(0.0, float((weights[has] * (p[has] - q[has])).sum()) / math.log(2))
