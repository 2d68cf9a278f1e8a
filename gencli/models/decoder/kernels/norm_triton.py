"""RMS norms and residual sums with Triton: one program a row, so that no row depends on its neighbours."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["OPTIONS", "added", "added_normed", "normed"]

OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}


@triton.jit
def _of_norm(values, weight, places, is_inside, width, eps):  # type: ignore[no-untyped-def]
    wide = values.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / width + eps)
    factors = tl.load(weight + places, mask=is_inside, other=0.0).to(tl.float32)
    return (wide * scale * factors).to(values.dtype)


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    states,
    more,
    post,
    weight,
    total,
    made,
    width,
    post_eps,
    scale,
    eps,
    IS_ADDED: tl.constexpr,
    HAS_POST: tl.constexpr,
    HAS_NORM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    start = tl.program_id(0).to(tl.int64) * width
    places = tl.arange(0, BLOCK)
    is_inside = places < width
    values = tl.load(states + start + places, mask=is_inside, other=0.0)
    if IS_ADDED:
        extra = tl.load(more + start + places, mask=is_inside, other=0.0)
        if HAS_POST:
            extra = _of_norm(extra, post, places, is_inside, width, post_eps)
        extra = (extra.to(tl.float32) * scale).to(values.dtype)
        values = (values.to(tl.float32) + extra.to(tl.float32)).to(values.dtype)
        tl.store(total + start + places, values, mask=is_inside)
    if HAS_NORM:
        found = _of_norm(values, weight, places, is_inside, width, eps)
        tl.store(made + start + places, found, mask=is_inside)


def normed(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As the operation rms_norm."""
    made = torch.empty_like(states)
    _launch(states, None, None, 0.0, 1.0, weight, eps, None, made)
    return made


def added(states: Tensor, more: Tensor, post: Tensor | None, post_eps: float, scale: float) -> Tensor:
    """As the operation add_residual."""
    total = torch.empty_like(states)
    _launch(states, more, post, post_eps, scale, None, 0.0, total, None)
    return total


def added_normed(
    states: Tensor,
    more: Tensor,
    post: Tensor | None,
    post_eps: float,
    scale: float,
    weight: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """As the operation add_rms_norm."""
    total, made = torch.empty_like(states), torch.empty_like(states)
    _launch(states, more, post, post_eps, scale, weight, eps, total, made)
    return total, made


def _launch(
    states: Tensor,
    more: Tensor | None,
    post: Tensor | None,
    post_eps: float,
    scale: float,
    weight: Tensor | None,
    eps: float,
    total: Tensor | None,
    made: Tensor | None,
) -> None:
    """Launch a program a row. All tensors are contiguous; one that is None stands for no such step."""
    rows, width = states.shape
    given = [states if one is None else one for one in (more, post, weight, total, made)]
    _kernel[(rows,)](
        states,
        *given,
        width,
        post_eps,
        scale,
        eps,
        IS_ADDED=more is not None,
        HAS_POST=post is not None,
        HAS_NORM=weight is not None,
        BLOCK=triton.next_power_of_2(width),
        **OPTIONS,
    )
