"""Which of the sampled tokens stand: the accepted drafts of each request, and one more."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.rows import Rows

__all__ = ["verify"]


def verify(sampled: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """Accept drafts while they equal what was sampled (policy `match`).

    sampled [R] holds one token a row, Q requests with K_i + 1 rows each. Returns tokens [Q, K + 1] and
    counts [Q]: the first counts[i] tokens of request i stand, the accepted drafts and the token chosen
    after them. Without drafts (K = 0) that is the sampled token of each request.
    """
    sizes = torch.tensor(rows.counts, dtype=torch.int64)
    starts = (sizes.cumsum(0) - sizes).to(sampled.device, non_blocking=True)
    num_drafts = (sizes - 1).to(sampled.device, non_blocking=True)
    width = rows.drafts.shape[1]
    place = torch.arange(width + 1, device=sampled.device)
    index = starts[:, None] + torch.minimum(place, num_drafts[:, None])
    tokens = sampled[index]
    agree = (tokens[:, :width] == rows.drafts[starts]) & (place[:width] < num_drafts[:, None])
    accepted = agree.cumprod(dim=1).sum(dim=1)
    return tokens, accepted + 1
