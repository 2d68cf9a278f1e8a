"""Norms, residual sums, gates and rotation with the write to the KV cache: one launch each on CUDA, with
the decoder's own code as reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import gelu, rms_norm, silu

from gencli.models.decoder.families import ALPHA, Activation
from gencli.models.kv.lane_buffers import as_stored
from gencli.models.rope import rotate
from processors.kernels.operations import operation


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS norm over the last dimension: x / sqrt(mean(x^2) + eps) * weight.

    With a float32 weight, values of 16 bits are rounded once, after the multiplication.
    """

    weight: Tensor
    eps: float

    def __call__(self, values: Tensor) -> Tensor:
        """Return the normalized values."""
        if self.weight.dtype != values.dtype:
            wide = values.to(self.weight.dtype)
            return rms_norm(wide, self.weight.shape, self.weight, self.eps).to(values.dtype)
        return rms_norm(values, self.weight.shape, self.weight, self.eps)


def normalize_heads(
    qkv: Tensor, heads: int, kv_heads: int, norms: tuple[Norm, Norm], *, is_whole: bool
) -> None:
    """Normalize queries and keys among `qkv` [N, Hq + 2 * Hkv, D] in place."""
    for part, norm in zip((qkv[:, :heads], qkv[:, heads : heads + kv_heads]), norms, strict=True):
        part.copy_(norm(part.flatten(1) if is_whole else part).view_as(part))


def residual_sum(states: Tensor, more: Tensor, scale: float) -> Tensor:
    """Return states + scale * more, all [N, H]; each step rounds to their format."""
    return states + (more if scale == 1.0 else more * scale)


def normed(states: Tensor, norm: Norm) -> Tensor:
    result: Tensor = _normed(states, norm.weight, norm.eps)
    return result


def added(states: Tensor, more: Tensor, post: Norm | None, scale: float) -> Tensor:
    """Return states + scale * post(more), all [N, H]. Each step rounds to the format of the states."""
    result: Tensor = _added(states, more, *_parts(post), scale)
    return result


def added_normed(
    states: Tensor, more: Tensor, post: Norm | None, scale: float, norm: Norm
) -> tuple[Tensor, Tensor]:
    """Return the sum of `added`, and its norm."""
    result: tuple[Tensor, Tensor] = _added_normed(states, more, *_parts(post), scale, norm.weight, norm.eps)
    return result


def _parts(norm: Norm | None) -> tuple[Tensor | None, float]:
    return (None, 0.0) if norm is None else (norm.weight, norm.eps)


def _added_torch(states: Tensor, more: Tensor, post: Tensor | None, post_eps: float, scale: float) -> Tensor:
    return residual_sum(states, more if post is None else Norm(post, post_eps)(more), scale)


def _added_normed_torch(
    states: Tensor,
    more: Tensor,
    post: Tensor | None,
    post_eps: float,
    scale: float,
    weight: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    total = _added_torch(states, more, post, post_eps, scale)
    return total, Norm(weight, eps)(total)


_MODULE = "gencli.models.decoder.kernels.norm_triton"
_normed = operation(
    "rms_norm(Tensor states, Tensor weight, float eps) -> Tensor",
    lambda states, weight, eps: Norm(weight, eps)(states),
    f"{_MODULE}:normed",
)
_added = operation(
    "add_residual(Tensor states, Tensor more, Tensor? post, float post_eps, float scale) -> Tensor",
    _added_torch,
    f"{_MODULE}:added",
)
_added_normed = operation(
    "add_rms_norm(Tensor states, Tensor more, Tensor? post, float post_eps, float scale, Tensor weight, "
    "float eps) -> (Tensor, Tensor)",
    _added_normed_torch,
    f"{_MODULE}:added_normed",
)


def _clamped(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """Return (up + 1) * gate * sigmoid(ALPHA * gate) of gates up to `limit` and of up within it.

    The product of gates and the whole are rounded.
    """
    wide = gate.float().clamp(max=limit)
    active = (wide * torch.sigmoid(ALPHA * wide)).to(gate.dtype)
    return (active.float() * (up.float().clamp(-limit, limit) + 1.0)).to(gate.dtype)


# Of gate, up and the limit, which the clamped one has alone.
ACTIVATIONS: Mapping[Activation, Callable[[Tensor, Tensor, float], Tensor]] = {
    "silu": lambda gate, up, limit: silu(gate).mul_(up),
    "gelu": lambda gate, up, limit: gelu(gate).mul_(up),
    "gelu_tanh": lambda gate, up, limit: gelu(gate, approximate="tanh").mul_(up),
    "clamped": _clamped,
}


def gated(gate_up: Tensor, activation: Activation, limit: float = 0.0) -> Tensor:
    """Return act(gate) * up, [N, I], of [N, 2 * I]: gates, then up. Both steps round to its format.

    The clamped activation is gate * sigmoid(1.702 * gate), times up + 1, with both up to `limit` and up from
    -limit on.
    """
    result: Tensor = _gated(gate_up, activation, limit)
    return result


def _gated_torch(gate_up: Tensor, activation: Activation, limit: float) -> Tensor:
    gate, up = gate_up.chunk(2, -1)
    return ACTIVATIONS[activation](gate, up, limit)


_gated = operation(
    "gated(Tensor made, str activation, float limit) -> Tensor",
    _gated_torch,
    "gencli.models.decoder.kernels.gate_triton:gated",
)


def rotate_and_store(
    qkv: Tensor,
    buffer: Tensor,
    cells: tuple[Tensor, Tensor],
    rope: tuple[Tensor, Tensor] | None,
    norms: tuple[Norm, Norm] | None,
    *,
    is_whole: bool,
) -> Tensor:
    """Return the queries [N, Hq, D] of a layer; write its keys and values to the KV cache.

    `qkv` [N, Hq + 2 * Hkv, D] has queries, keys and values. `buffer` is [rows, 2 * Hkv, capacity, D],
    `cells` are the (row, position) indices [N] of the tokens in it. `rope` are cosines and sines
    [N, 1, width], `norms` those of queries and keys, over a head or, with `is_whole`, over all heads
    together. Each step rounds to the format of `qkv`.
    """
    cos, sin = rope or (None, None)
    query, key = norms or (None, None)
    queries: Tensor = _rotated(
        qkv,
        buffer,
        *cells,
        cos,
        sin,
        None if query is None else query.weight,
        None if key is None else key.weight,
        0.0 if query is None else query.eps,
        is_whole,
    )
    return queries


def _rotated_torch(
    qkv: Tensor,
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
    heads, qkv = qkv.shape[1] - 2 * kv_heads, qkv.clone()
    if query is not None and key is not None:
        normalize_heads(qkv, heads, kv_heads, (Norm(query, eps), Norm(key, eps)), is_whole=is_whole)
    if cos is not None and sin is not None:
        rotate(qkv[:, : heads + kv_heads], cos, sin)
    buffer.transpose(1, 2)[rows, positions] = as_stored(qkv[:, heads:], buffer.dtype)
    return qkv[:, :heads].contiguous()


_rotated = operation(
    "rotate_and_store(Tensor made, Tensor(a!) buffer, Tensor rows, Tensor positions, Tensor? cos, "
    "Tensor? sin, Tensor? query, Tensor? key, float eps, bool is_whole) -> Tensor",
    _rotated_torch,
    "gencli.models.decoder.kernels.rotary_triton:rotate_and_store",
)
