"""Attention of one token a lane over what its own lane holds, where lanes are of very different length.

A pass over many lanes reads all of them as far as the longest one goes, and a mask hides the rest. On a CPU,
where reading keys and values is most of the work, lane by lane is faster once enough would be hidden.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward

__all__ = ["lane_attention", "mark_spans"]

# Hidden keys a lane, on average, that cost as much as one more call of the kernel (7 us, 0.1 us a key).
_WORTH = 64


def mark_spans(mask: Tensor) -> Tensor:
    """Note on a boolean mask [B, 1, 1, K] which keys each lane sees, if that is worth lane by lane.

    Nothing is noted where a lane sees keys that are no neighbours, or the mask is not on a CPU.
    """
    if mask.device.type != "cpu" or mask.shape[2] > 1 or mask.shape[0] == 1:
        return mask
    seen = mask[:, 0, 0]
    counts = seen.sum(1)
    if int(seen.shape[1] * len(counts) - counts.sum()) < _WORTH * len(counts):
        return mask
    first = seen.int().argmax(1)
    # The sum of distinct places from `first` on is least where they are neighbours.
    places = (seen * torch.arange(seen.shape[1])).sum(1)
    if bool((2 * places == counts * (2 * first + counts - 1)).all()):
        cast(Any, mask).spans = torch.stack([first, first + counts], 1).tolist()
    return mask


def lane_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The library's attention, or lane by lane where the mask has spans; [B, Q, H, D]."""
    spans = getattr(attention_mask, "spans", None)
    if spans is None or kwargs.get("position_bias") is not None or kwargs.get("softcap") is not None:
        out = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return cast("tuple[Tensor, Tensor | None]", out)
    # The heads that share keys are as many queries of one head.
    grouped = query.reshape(len(spans), key.shape[1], -1, query.shape[3])
    lanes = [
        scaled_dot_product_attention(
            grouped[lane, None], key[lane, None, :, first:end], value[lane, None, :, first:end], scale=scaling
        )
        for lane, (first, end) in enumerate(spans)
    ]
    return torch.cat(lanes).view(len(spans), 1, query.shape[1], -1), None
