"""Classifier-free guidance and contrastive decoding: two distributions combined into one.

Both are u + s (c - u) over log-probabilities. Classifier-free guidance (Sanchez et al. 2023): c under the
prompt, u under the negative prompt, s the scale. Contrastive decoding (Li et al. 2023): c by the expert, u by
the amateur, s = 1 + beta with the strength beta of O'Brien and Lewis 2023.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["fold"]


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
