"""Guidance: two distributions of a row combined into one.

Classifier-free guidance and contrastive decoding are both u + s (c - u) over log-probabilities.
Classifier-free guidance (Sanchez et al. 2023): c under the prompt, u under the negative prompt, s the scale.
Contrastive decoding (Li et al. 2023): c by the expert, u by the amateur, s = 1 + beta with the strength beta
of O'Brien and Lewis 2023. DoLa (Chuang et al. 2024) contrasts the last layer with an early one.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from processors.kernels.sums import row_sums

__all__ = ["contrast_layers", "fold"]

_LEAST = -1e30  # log-probability of an id masked by an early layer


def fold(logits: Tensor, companion: Tensor, scale: Tensor, cutoff: Tensor) -> Tensor:
    """Return u + scale (c - u) [G, V] float32, c and u the log-probabilities of logits and companion.

    logits and companion [G, V] are raw logits. scale [G] >= 0: 1 gives c, 0 gives u. Ids whose probability
    under c is below cutoff [G] times the largest are masked (plausibility constraint; 0 masks none). An id
    masked in either input is masked in the result.
    """
    least = logits.amax(dim=-1, keepdim=True) + cutoff[:, None].log()  # -inf for a cutoff of 0
    forbidden = (logits == -torch.inf) | (companion == -torch.inf) | (logits < least)
    c = logits.log_softmax(dim=-1, dtype=torch.float32)
    u = companion.log_softmax(dim=-1, dtype=torch.float32)
    return c.sub_(u).mul_(scale[:, None]).add_(u).masked_fill_(forbidden, -torch.inf)


def contrast_layers(logits: Tensor, early: Iterable[tuple[Tensor, Tensor]], cutoff: Tensor) -> Tensor:
    """Return c - u [D, V] float32: log-probabilities of the last layer minus those of an early one (DoLa).

    `early` yields for each early layer its logits [D, V], and the rows [D] bool for which it is a candidate.
    u of a row is the candidate layer farthest from c by Jensen-Shannon divergence; a row without candidates
    is c itself. Ids below cutoff [D] times the largest probability are masked, as in `fold`. An id masked in
    logits is masked in the result; an id masked only in the early layer has log-probability -1e30 there.
    """
    c = logits.log_softmax(dim=-1, dtype=torch.float32)
    u, farthest = torch.zeros_like(c), c.new_full((len(c), 1), -torch.inf)
    for layer, is_candidate in early:
        other = layer.log_softmax(dim=-1, dtype=torch.float32).clamp_(min=_LEAST)
        distance = _divergence(c, other)
        is_farther = is_candidate[:, None] & (distance > farthest)
        u, farthest = torch.where(is_farther, other, u), torch.where(is_farther, distance, farthest)
    least = c.amax(dim=-1, keepdim=True) + cutoff[:, None].log()
    return torch.where(c < least, -torch.inf, c.sub(u))


def _divergence(one: Tensor, other: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence [D, 1] in nats of two rows of log-probabilities [D, V]."""
    halves = [side.exp() for side in (one, other)]
    middle = (halves[0] + halves[1]).mul_(0.5).log_()
    each = zip(halves, (one, other), strict=True)
    parts = [half.mul_(side - middle).nan_to_num_(0.0) for half, side in each]
    return row_sums(parts[0] + parts[1]).mul_(0.5)
