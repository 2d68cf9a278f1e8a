"""Two distributions folded into one: classifier-free guidance, and an expert against an amateur.

Guidance (Sanchez et al. 2023) and contrastive decoding (Li et al. 2023; with a strength beta in O'Brien and
Lewis 2023) are one formula, u + s (c - u) over log-probabilities: c under the prompt or by the expert, u
under the negative prompt or by the amateur, s the scale, 1 + beta there.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["fold"]


def fold(logits: Tensor, companion: Tensor, scale: Tensor, cutoff: Tensor) -> Tensor:
    """Log-probabilities moved away from the companion's, up to a constant a row: [G, V] float32.

    logits and companion [G, V] are the two models' own; scale [G] >= 0, of which 1 changes nothing and 0
    leaves the companion alone. Ids whose probability is below cutoff [G] times that of the most likely one
    are masked (the expert's plausibility; 0: none). What either of the two forbids stays forbidden.
    """
    least = logits.amax(dim=-1, keepdim=True) + cutoff[:, None].log()  # -inf for a cutoff of 0
    forbidden = (logits == -torch.inf) | (companion == -torch.inf) | (logits < least)
    c = logits.log_softmax(dim=-1, dtype=torch.float32)
    u = companion.log_softmax(dim=-1, dtype=torch.float32)
    return c.sub_(u).mul_(scale[:, None]).add_(u).masked_fill_(forbidden, -torch.inf)
