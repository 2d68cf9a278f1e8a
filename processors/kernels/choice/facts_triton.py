"""Facts of each block of a row's logits with Triton, in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.parts import Control
from processors.sampler import BLOCK

__all__ = ["EACH", "OPTIONS", "block_facts_triton"]

EACH = 8  # blocks per program
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF = tl.constexpr(float("inf"))


@triton.jit
def _of_facts(x, heat):  # type: ignore[no-untyped-def]
    """Largest and least finite of x [N, BLOCK], sum of exp below the largest, number of finite ones, [N]."""
    is_nan = tl.max((x != x).to(tl.int32), 1) > 0
    is_finite = x > -_INF
    top = tl.where(is_nan, float("nan"), tl.max(x, 1))
    base = tl.where(top > -_INF, top, 0.0)
    scale = tl.where(heat > 0, 1.0 / heat, 1.0)
    total = tl.sum(tl.exp((x - base[:, None]) * scale), 1)
    low = tl.min(tl.where(is_finite, x, _INF), 1)
    return top, low, total, tl.sum(is_finite.to(tl.int32), 1).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    logits, controls, facts, width, stride, blocks, CONTROLS: tl.constexpr, HEAT: tl.constexpr,
    BLOCK: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * EACH + tl.arange(0, EACH)
    ids = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(logits + row * stride + ids, mask=ids < width, other=-_INF).to(tl.float32)
    top, low, total, count = _of_facts(x, tl.load(controls + row * CONTROLS + HEAT).to(tl.float32))
    at, is_inside = facts + row * 4 * blocks + block, block < blocks
    tl.store(at, top, mask=is_inside)
    tl.store(at + blocks, low, mask=is_inside)
    tl.store(at + 2 * blocks, total, mask=is_inside)
    tl.store(at + 3 * blocks, count, mask=is_inside)


def block_facts_triton(logits: Tensor, controls: Tensor) -> Tensor:
    """As block_facts_torch. Logits need contiguous rows."""
    rows, width = logits.shape
    blocks = triton.cdiv(width, BLOCK)
    facts = torch.empty((rows, 4, blocks), dtype=torch.float32, device=logits.device)
    grid = (rows, triton.cdiv(blocks, EACH))
    sizes = {"CONTROLS": len(Control), "HEAT": int(Control.HEAT_CUT), "BLOCK": BLOCK, "EACH": EACH}
    _kernel[grid](logits, controls, facts, width, logits.stride(0), blocks, **sizes, **OPTIONS)
    return facts
