"""Attention of single tokens over rows of the KV cache, in two launches on CUDA, and of adjacent tokens of
one text. The keys of a row are cut into parts of SPLIT tokens: the first launch computes the softmax of
each part, the second joins the parts in their order, so the bits of a token depend on its own row
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gencli.models.kv.lane_buffers import widened
from processors.kernels.operations import operation

SPLIT = 128  # tokens of a row that one program reads


def attend_rows(
    queries: Tensor,
    buffer: Tensor,
    rows: Tensor,
    positions: Tensor,
    end: int,
    *,
    window: int | None,
    scale: float,
    cap: float | None,
    sinks: Tensor | None = None,
    together: int = 1,
) -> Tensor:
    """Return the attention [N, Hq * D] of `queries` [N, Hq, D], in their format.

    `buffer` [rows, 2 * Hkv, capacity, W] has keys, then values, as they are stored (see kv.formats). Query n
    reads the keys of row rows[n] up to positions[n], which is below `end`; a window in tokens hides keys
    before it. Scores are multiplied by `scale`, and then become cap * tanh(score / cap) where a cap is given.
    `sinks` [Hq] float32 are scores without a value: softmax([scores, sink])[:-1] weighs the values. The
    launch that joins the parts adds them.

    Each `together` tokens, from the first on, read their keys together: they have successive positions in one
    row. A token has the same bits as alone if the keys and values of its row are finite.
    """
    inputs = (queries, buffer, rows, positions, num_parts(end, window), window or 0, scale, cap or 0.0)
    parts, marks = _parts(*inputs) if together == 1 else _tiles(*inputs, together)
    attention: Tensor = _joined(parts, marks, positions, window or 0, queries.dtype, sinks)
    return attention


def num_parts(end: int, window: int | None) -> int:
    """Return how many parts a row has at most, with keys before `end` or of a window."""
    parts = -(-end // SPLIT)
    return parts if window is None else min(parts, (window - 2) // SPLIT + 2)


def _parts_torch(
    queries: Tensor,
    buffer: Tensor,
    rows: Tensor,
    positions: Tensor,
    num: int,
    window: int,
    scale: float,
    cap: float,
) -> tuple[Tensor, Tensor]:
    """Return sums of values [N, Hq, P, D] and (largest score, sum of weights) [N, Hq, P, 2], in float32.

    It goes token by token, so that the bits of a token do not depend on others here either.
    """
    kv_heads = buffer.shape[1] // 2
    all_sums, all_marks = [], []
    for query, row, position in zip(queries, rows, positions, strict=True):
        heads, width = query.shape
        first = (position + 1 - window).clamp(min=0) // SPLIT if window else 0
        places = first * SPLIT + torch.arange(num * SPLIT, device=buffer.device)
        is_seen = places <= position
        if window:
            is_seen &= places > position - window
        held = buffer.index_select(0, row[None])[0].index_select(1, places.clamp(max=buffer.shape[2] - 1))
        keys, values = widened(held, query.dtype).float().chunk(2)  # [Hkv, P * SPLIT, D]
        scores = (query.float().view(kv_heads, -1, width) @ keys.transpose(1, 2)) * scale
        if cap:
            scores = (scores / cap).tanh() * cap
        scores = scores.masked_fill(~is_seen, -torch.inf).view(heads, num, SPLIT)
        top = scores.amax(-1, keepdim=True)
        weights = (scores - top.clamp(min=-3e38)).exp()
        rounded = weights.to(query.dtype).float().view(kv_heads, -1, num, 1, SPLIT)
        sums = rounded @ values.reshape(kv_heads, 1, num, SPLIT, width)
        all_sums.append(sums.view(heads, num, width))
        all_marks.append(torch.cat([top, weights.sum(-1, keepdim=True)], -1))
    return torch.stack(all_sums), torch.stack(all_marks)


def _joined_torch(
    parts: Tensor, marks: Tensor, positions: Tensor, window: int, dtype: torch.dtype, sinks: Tensor | None
) -> Tensor:
    tops, totals = marks.unbind(-1)
    top = tops.amax(-1, keepdim=True)
    if sinks is not None:
        top = torch.maximum(top, sinks[:, None])
    weights = (tops - top).exp()
    total = (totals * weights).sum(-1, keepdim=True)
    if sinks is not None:
        total = total + (sinks[:, None] - top).exp()
    mixed = (parts * weights[..., None]).sum(2) / total
    return mixed.flatten(1).to(dtype)


_MODULE = "gencli.models.decoder.kernels.attention_triton"
_parts = operation(
    "attend_parts(Tensor queries, Tensor buffer, Tensor rows, Tensor positions, int num, int window, "
    "float scale, float cap) -> (Tensor, Tensor)",
    _parts_torch,
    f"{_MODULE}:attend_parts",
)
_tiles = operation(
    "attend_tiles(Tensor queries, Tensor buffer, Tensor rows, Tensor positions, int num, int window, "
    "float scale, float cap, int together) -> (Tensor, Tensor)",
    lambda *inputs: _parts_torch(*inputs[:-1]),  # token by token here too
    "gencli.models.decoder.kernels.attention_tiles_triton:attend_tiles",
)
_joined = operation(
    "join_parts(Tensor parts, Tensor marks, Tensor positions, int window, ScalarType dtype, "
    "Tensor? sinks) -> Tensor",
    _joined_torch,
    f"{_MODULE}:join_parts",
)


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
    attention: Tensor = _attended(queries, keys, values, window or 0, scale, cap or 0.0, sinks)
    return attention


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
    places = torch.arange(length, device=queries.device)
    asking = places[length - width :, None]
    hidden = places > asking  # [W, K]: the keys that a query does not see
    if window:
        hidden |= places <= asking - window
    asked = queries.transpose(0, 1)
    # Copies of the heads, as PyTorch has no kernel that shares them and takes a mask.
    held, weighed = (part.transpose(0, 1).repeat_interleave(heads // kv_heads, 0) for part in (keys, values))
    if not cap and sinks is None:
        mask = torch.zeros(hidden.shape, dtype=queries.dtype, device=queries.device)
        mask.masked_fill_(hidden, -torch.inf)
        # In four dimensions, as the kernels of PyTorch for GPUs ask for them.
        mixed = scaled_dot_product_attention(
            asked[None], held[None], weighed[None], mask[None, None], scale=scale
        )
        return mixed[0].transpose(0, 1).flatten(1)
    scores = (asked @ held.transpose(1, 2)) * scale
    if cap:
        scores = (scores / cap).tanh_() * cap
    over = None if sinks is None else sinks[:, None, None]
    weights = shares(scores.masked_fill_(hidden, -torch.inf), over).to(queries.dtype)
    return (weights @ weighed).transpose(0, 1).flatten(1)


_attended = operation(
    "attend_chunk(Tensor queries, Tensor keys, Tensor values, int window, float scale, float cap, "
    "Tensor? sinks) -> Tensor",
    attend_chunk_torch,
    "gencli.models.decoder.kernels.attention:attend_chunk_varlen",
)


_FORMATS = (torch.bfloat16, torch.float16)
_MAX_WIDTH = 256  # of a head


def attend_chunk_varlen(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    window: int,
    scale: float,
    cap: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """As attend_chunk_torch, which computes what the kernel lacks: caps, float32, and older GPUs.

    The kernel has no sinks: its sums are reduced by their share, in one more rounding.
    """
    attend, size = _packed_attention(), queries.shape[-1]
    if (
        attend is None
        or cap
        or queries.dtype not in _FORMATS
        or size % 8
        or size > _MAX_WIDTH
        or torch.cuda.get_device_capability(queries.device) < (8, 0)
    ):
        return attend_chunk_torch(queries, keys, values, window, scale, cap, sinks)
    width, length = len(queries), len(keys)
    more = {}
    if sinks is not None:
        from torch.nn.attention.varlen import AuxRequest

        # The logarithm of each query's sum of weights, [Hq, W] float32.
        more["return_aux"] = AuxRequest(lse=True)
    result = attend(
        queries,
        keys,
        values,
        torch.arange(0, width + 1, width, dtype=torch.int32, device=queries.device),
        torch.arange(0, length + 1, length, dtype=torch.int32, device=queries.device),
        width,
        length,
        scale=scale,
        window_size=(window - 1, 0) if window else (-1, 0),
        enable_gqa=True,
        num_splits=1,  # the sums of a text are the same beside any others
        **more,
    )
    if sinks is not None:
        mixed, sums = result
        result = reduced(mixed, sums, sinks)
    attention: Tensor = result.flatten(1)
    return attention


@cache
def _packed_attention() -> Callable[..., Any] | None:
    """Return PyTorch's attention of packed texts; None before it could share key heads and fix its sums."""
    if find_spec("torch.nn.attention.varlen") is None:
        return None
    from torch.nn.attention.varlen import varlen_attn

    is_whole = {"enable_gqa", "num_splits"} <= signature(varlen_attn).parameters.keys()
    return varlen_attn if is_whole else None


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
