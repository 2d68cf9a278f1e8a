"""RMS norms and residual sums of a layer: each norm takes one launch on CUDA, with the sum before it."""

from __future__ import annotations

from torch import Tensor

from gencli.models.decoder.norms import Norm, residual_sum
from processors.kernels.operation import operation

__all__ = ["added", "added_normed", "normed"]


def normed(states: Tensor, norm: Norm) -> Tensor:
    """Return the norm of states [N, H]."""
    found: Tensor = _normed(states, norm.weight, norm.eps)
    return found


def added(states: Tensor, more: Tensor, post: Norm | None, scale: float) -> Tensor:
    """Return states + scale * post(more), all [N, H]. Each step rounds to the format of the states."""
    found: Tensor = _added(states, more, *_parts(post), scale)
    return found


def added_normed(
    states: Tensor, more: Tensor, post: Norm | None, scale: float, norm: Norm
) -> tuple[Tensor, Tensor]:
    """Return the sum of `added`, and its norm."""
    found: tuple[Tensor, Tensor] = _added_normed(states, more, *_parts(post), scale, norm.weight, norm.eps)
    return found


def _parts(norm: Norm | None) -> tuple[Tensor | None, float]:
    return (None, 0.0) if norm is None else (norm.weight, norm.eps)


def _normed_torch(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    return Norm(weight, eps)(states)


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
    "rms_norm(Tensor states, Tensor weight, float eps) -> Tensor", _normed_torch, f"{_MODULE}:normed"
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
