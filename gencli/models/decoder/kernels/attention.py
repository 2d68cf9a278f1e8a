"""Attention of single tokens over rows of the KV cache, in two launches on CUDA.

The keys of a row are cut into parts of SPLIT tokens. The first launch computes the softmax of each part, the
second joins the parts in their order. So the bits of a token depend on its own row alone, and a row costs
what it holds, whatever `end` bounds the longest one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gencli.models.kv.formats import widened
from processors.kernels.operation import operation

__all__ = ["SPLIT", "attend_rows", "num_parts"]

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
    given = (queries, buffer, rows, positions, num_parts(end, window), window or 0, scale, cap or 0.0)
    parts, marks = _parts(*given) if together == 1 else _tiles(*given, together)
    found: Tensor = _joined(parts, marks, positions, window or 0, queries.dtype, sinks)
    return found


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
    found = [
        _part_torch(query, buffer, row, position, num, window, scale, cap)
        for query, row, position in zip(queries, rows, positions, strict=True)
    ]
    return torch.stack([sums for sums, _ in found]), torch.stack([marks for _, marks in found])


def _part_torch(
    query: Tensor,
    buffer: Tensor,
    row: Tensor,
    position: Tensor,
    num: int,
    window: int,
    scale: float,
    cap: float,
) -> tuple[Tensor, Tensor]:
    """Return what _parts_torch does, of one token: [Hq, P, D] and [Hq, P, 2]."""
    heads, width = query.shape
    kv_heads = buffer.shape[1] // 2
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
    return sums.view(heads, num, width), torch.cat([top, weights.sum(-1, keepdim=True)], -1)


def _tiles_torch(
    queries: Tensor,
    buffer: Tensor,
    rows: Tensor,
    positions: Tensor,
    num: int,
    window: int,
    scale: float,
    cap: float,
    together: int,
) -> tuple[Tensor, Tensor]:
    """As _parts_torch; tokens are computed one by one here too."""
    return _parts_torch(queries, buffer, rows, positions, num, window, scale, cap)


def _joined_torch(
    parts: Tensor,
    marks: Tensor,
    positions: Tensor,
    window: int,
    dtype: torch.dtype,
    sinks: Tensor | None,
) -> Tensor:
    """Return the attention [N, Hq * D] of the parts of _parts_torch."""
    tops, totals = marks.unbind(-1)
    top = tops.amax(-1, keepdim=True)
    if sinks is not None:
        top = torch.maximum(top, sinks[:, None])
    weights = (tops - top).exp()
    total = (totals * weights).sum(-1, keepdim=True)
    if sinks is not None:
        total = total + (sinks[:, None] - top).exp()
    found = (parts * weights[..., None]).sum(2) / total
    return found.flatten(1).to(dtype)


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
    _tiles_torch,
    "gencli.models.decoder.kernels.attention_tiles_triton:attend_tiles",
)
_joined = operation(
    "join_parts(Tensor parts, Tensor marks, Tensor positions, int window, ScalarType dtype, "
    "Tensor? sinks) -> Tensor",
    _joined_torch,
    f"{_MODULE}:join_parts",
)
