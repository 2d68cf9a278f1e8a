"""Attention of adjacent tokens of one text: a prompt, or a chunk of one."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gencli.models.decoder.sinks import shares
from processors.kernels.operation import operation

__all__ = ["attend_chunk", "attend_chunk_torch"]


def attend_chunk(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    window: int | None,
    scale: float,
    cap: float | None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Return the attention [W, Hq * D] of the last W of K tokens, in the format of `queries` [W, Hq, D].

    `keys` and `values` [K, Hkv, D] have the same format. A query sees the keys up to its own place; a window
    in tokens hides keys before it. Scores are multiplied by `scale`, and then become cap * tanh(score / cap)
    where a cap is given. `sinks` [Hq] float32 are scores without a value: softmax([scores, sink])[:-1] weighs
    the values.
    """
    found: Tensor = _attended(queries, keys, values, window or 0, scale, cap or 0.0, sinks)
    return found


def attend_chunk_torch(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    window: int,
    scale: float,
    cap: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """As attend_chunk, with a mask; 0 stands for no window and no cap."""
    width, heads, _ = queries.shape
    length, kv_heads, _ = keys.shape
    hidden = _hidden(width, length, window, queries.device)
    asked = queries.transpose(0, 1)
    # Copies of the heads, as PyTorch has no kernel that shares them and takes a mask.
    held, weighed = (part.transpose(0, 1).repeat_interleave(heads // kv_heads, 0) for part in (keys, values))
    if not cap and sinks is None:
        mask = torch.zeros(hidden.shape, dtype=queries.dtype, device=queries.device)
        mask.masked_fill_(hidden, -torch.inf)
        # In four dimensions, as the kernels of PyTorch for GPUs ask for them.
        made = scaled_dot_product_attention(
            asked[None], held[None], weighed[None], mask[None, None], scale=scale
        )
        return made[0].transpose(0, 1).flatten(1)
    scores = (asked @ held.transpose(1, 2)) * scale
    if cap:
        scores = (scores / cap).tanh_() * cap
    over = None if sinks is None else sinks[:, None, None]
    weights = shares(scores.masked_fill_(hidden, -torch.inf), over).to(queries.dtype)
    return (weights @ weighed).transpose(0, 1).flatten(1)


def _hidden(width: int, length: int, window: int, device: torch.device) -> Tensor:
    """Return [W, K] bools, True for the keys that a query does not see."""
    keys = torch.arange(length, device=device)
    places = keys[length - width :, None]
    hidden = keys > places
    return hidden | (keys <= places - window) if window else hidden


_attended = operation(
    "attend_chunk(Tensor queries, Tensor keys, Tensor values, int window, float scale, float cap, "
    "Tensor? sinks) -> Tensor",
    attend_chunk_torch,
    "gencli.models.decoder.kernels.chunk_varlen:attend_chunk_varlen",
)
