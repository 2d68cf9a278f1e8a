"""Attention sinks: a learned score of each query head that takes its share and has no value."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["reduced", "shares"]


def shares(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Return softmax([scores, sink])[..., :-1], the weights of K values, of `scores` [..., K], in float32.

    `sinks` is float32 and broadcasts to [..., 1]. Without it this is the softmax.
    """
    if sinks is None:
        return scores.softmax(-1, dtype=torch.float32)
    column = sinks.expand(*scores.shape[:-1], 1)
    return torch.cat([scores.float(), column], -1).softmax(-1)[..., :-1]


def reduced(mixed: Tensor, logsumexp: Tensor, sinks: Tensor) -> Tensor:
    """Return attention with sinks, of attention without them `mixed` [N, Hq, D], in its format.

    `logsumexp` [Hq, N] has log(sum(exp(scores))) of each query, and `sinks` is [Hq], both in float32. The
    share of all keys together is sigmoid(logsumexp - sink).
    """
    kept = torch.sigmoid(logsumexp - sinks[:, None])
    return (mixed * kept.t()[..., None]).to(mixed.dtype)
