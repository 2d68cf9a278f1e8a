"""Policies that let more drafts stand than the target's distribution would: they change the text."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.softmax import token_probability

__all__ = ["TYPICAL_FACTOR", "TYPICAL_FLOOR", "above_threshold", "is_typical"]

TYPICAL_FLOOR, TYPICAL_FACTOR = 0.09, 0.3


def above_threshold(logits: Tensor, drafted: Tensor, threshold: float) -> Tensor:
    """Rows [R] bool whose draft [R] has at least this probability under the target's logits [R, V]."""
    return token_probability(logits, drafted) >= threshold


def is_typical(logits: Tensor, drafted: Tensor) -> Tensor:
    """Rows [R] bool whose draft is typical: p > min(floor, factor * exp(-H)), H the entropy in nats.

    Cai et al. 2024 (Medusa).
    """
    logprobs = logits.log_softmax(dim=-1)
    entropy = torch.special.entr(logprobs.exp()).sum(dim=-1)
    chosen = logprobs.gather(1, drafted[:, None]).squeeze(1).exp()
    level = (TYPICAL_FACTOR * (-entropy).exp()).clamp(max=TYPICAL_FLOOR)
    return torch.gt(chosen, level)
