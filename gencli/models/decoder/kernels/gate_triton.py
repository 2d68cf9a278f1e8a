"""The gate of a feed-forward block with Triton: every number of it alone."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["BLOCK", "OPTIONS", "gated"]

BLOCK = 1024  # numbers per program
OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    made, out, inner, ACTIVATION: tl.constexpr, LIMIT: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = places < inner
    given = tl.load(made + row * 2 * inner + places, mask=is_inside, other=0.0)
    up = tl.load(made + row * 2 * inner + inner + places, mask=is_inside, other=0.0).to(tl.float32)
    gate = given.to(tl.float32)
    if ACTIVATION == "silu":
        active = gate / (1.0 + tl.exp(-gate))
    elif ACTIVATION == "gelu":
        active = gate * 0.5 * (1.0 + tl.erf(gate * 0.7071067811865476))
    elif ACTIVATION == "clamped":
        gate = tl.where(gate > LIMIT, LIMIT, gate)  # a NaN stays
        active = gate / (1.0 + tl.exp(-1.702 * gate))
        up = tl.where(up > LIMIT, LIMIT, tl.where(up < -LIMIT, -LIMIT, up)) + 1.0
    else:
        inside = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        active = gate / (1.0 + tl.exp(-2.0 * inside))  # half of 1 + tanh(inside)
    found = active.to(given.dtype).to(tl.float32) * up
    tl.store(out + row * inner + places, found.to(given.dtype), mask=is_inside)


def gated(made: Tensor, activation: str, limit: float) -> Tensor:
    """As the operation gated. `made` is contiguous."""
    rows, inner = len(made), made.shape[1] // 2
    out = made.new_empty(rows, inner)
    grid = (rows, triton.cdiv(inner, BLOCK))
    _kernel[grid](made, out, inner, ACTIVATION=activation, LIMIT=limit, BLOCK=BLOCK, **OPTIONS)
    return out
