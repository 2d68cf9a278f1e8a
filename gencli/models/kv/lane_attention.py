"""Per-lane attention for decode steps (one query per lane) over lanes of very different length.

Batched attention reads every lane up to the length of the longest one, and masks the rest. On a CPU, where
reading keys and values dominates, one kernel call per lane is faster once enough keys are masked.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward

__all__ = ["lane_attention", "mark_spans"]

# Masked keys per lane, on average, that cost as much as one more kernel call (7 us; 0.1 us per key).
_MIN_MASKED_KEYS = 64


def mark_spans(mask: Tensor) -> Tensor:
    """Return the boolean mask [B, 1, Q, K], with `spans` = (first, end) of the keys each lane sees.

    `spans` is set only where per-lane attention is faster: Q = 1, B > 1, on a CPU, enough masked keys, and
    the keys of every lane contiguous.
    """
    if mask.device.type != "cpu" or mask.shape[2] > 1 or mask.shape[0] == 1:
        return mask
    seen = mask[:, 0, 0]
    counts = seen.sum(1)
    if int(seen.shape[1] * len(counts) - counts.sum()) < _MIN_MASKED_KEYS * len(counts):
        return mask
    first = seen.int().argmax(1)
    # Distinct positions from `first` on have the smallest sum if they are contiguous.
    sums = (seen * torch.arange(seen.shape[1])).sum(1)
    if bool((2 * sums == counts * (2 * first + counts - 1)).all()):
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
    """Return SDPA attention [B, Q, H, D], computed per lane if the mask has `spans`."""
    spans = getattr(attention_mask, "spans", None)
    if spans is None or kwargs.get("position_bias") is not None or kwargs.get("softcap") is not None:
        out = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return cast("tuple[Tensor, Tensor | None]", out)
    # Query heads that share a key head become queries of that head.
    grouped = query.reshape(len(spans), key.shape[1], -1, query.shape[3])
    lanes = [
        scaled_dot_product_attention(
            grouped[lane, None], key[lane, None, :, first:end], value[lane, None, :, first:end], scale=scaling
        )
        for lane, (first, end) in enumerate(spans)
    ]
    return torch.cat(lanes).view(len(spans), 1, query.shape[1], -1), None
