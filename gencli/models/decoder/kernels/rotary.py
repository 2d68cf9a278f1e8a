"""Norms and rotation of queries and keys, and the write to the KV cache: one launch on CUDA."""

from __future__ import annotations

from torch import Tensor

from gencli.models.decoder.norms import Norm, normalize_heads
from gencli.models.decoder.rope import rotate
from gencli.models.kv.formats import as_stored
from processors.kernels.operation import operation

__all__ = ["rotate_and_store"]


def rotate_and_store(
    made: Tensor,
    buffer: Tensor,
    cells: tuple[Tensor, Tensor],
    rope: tuple[Tensor, Tensor] | None,
    norms: tuple[Norm, Norm] | None,
    *,
    is_whole: bool,
) -> Tensor:
    """Return the queries [N, Hq, D] of a layer; write its keys and values to the KV cache.

    `made` [N, Hq + 2 * Hkv, D] has queries, keys and values. `buffer` is [rows, 2 * Hkv, capacity, D],
    `cells` are the (row, position) indices [N] of the tokens in it. `rope` are cosines and sines
    [N, 1, width], `norms` those of queries and keys, over a head or, with `is_whole`, over all heads
    together. Each step rounds to the format of `made`.
    """
    cos, sin = rope or (None, None)
    query, key = norms or (None, None)
    found: Tensor = _rotated(
        made,
        buffer,
        *cells,
        cos,
        sin,
        None if query is None else query.weight,
        None if key is None else key.weight,
        0.0 if query is None else query.eps,
        is_whole,
    )
    return found


def _rotated_torch(
    made: Tensor,
    buffer: Tensor,
    rows: Tensor,
    positions: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    query: Tensor | None,
    key: Tensor | None,
    eps: float,
    is_whole: bool,
) -> Tensor:
    kv_heads = buffer.shape[1] // 2
    heads, made = made.shape[1] - 2 * kv_heads, made.clone()
    if query is not None and key is not None:
        normalize_heads(made, heads, kv_heads, (Norm(query, eps), Norm(key, eps)), is_whole=is_whole)
    if cos is not None and sin is not None:
        rotate(made[:, : heads + kv_heads], cos, sin)
    buffer.transpose(1, 2)[rows, positions] = as_stored(made[:, heads:], buffer.dtype)
    return made[:, :heads].contiguous()


_rotated = operation(
    "rotate_and_store(Tensor made, Tensor(a!) buffer, Tensor rows, Tensor positions, Tensor? cos, "
    "Tensor? sin, Tensor? query, Tensor? key, float eps, bool is_whole) -> Tensor",
    _rotated_torch,
    "gencli.models.decoder.kernels.rotary_triton:rotate_and_store",
)
