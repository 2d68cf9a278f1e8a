"""The kernel of all_facts: one pass over the logits [R, V], and the thresholds of each row.

Grid (R, ceil(B / EACH)). A program reduces EACH blocks of BLOCK ids of one row to their facts. The program
that finishes last in a row (an atomic counter) also computes the row's levels, marks and token from the facts
of all its blocks (rows_triton.py), which saves a second launch.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.parts_triton import _of_logits, patch_arguments
from processors.kernels.choice.rows_triton import _of_row, row_tables
from processors.kernels.choice.tables import Control
from processors.kernels.operations import counters
from processors.sampler import BLOCK

__all__ = ["EACH", "OPTIONS", "all_facts_triton"]

EACH = 8  # blocks per program
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF, _LOG2_E = tl.constexpr(float("inf")), tl.constexpr(math.log2(math.e))
_BLOCK, _EACH = tl.constexpr(BLOCK), tl.constexpr(EACH)
_CONTROLS, _HEAT = tl.constexpr(len(Control)), tl.constexpr(int(Control.HEAT_CUT))


@triton.jit
def _of_finite(x):  # type: ignore[no-untyped-def]
    """Minimum and count of the finite values of x [N, BLOCK], [N] each."""
    is_finite = x > -_INF
    return tl.min(tl.where(is_finite, x, _INF), 1), tl.sum(is_finite.to(tl.int32), 1).to(tl.float32)


@triton.jit
def _of_facts(x, heat):  # type: ignore[no-untyped-def]
    """Maximum, finite minimum, sum of exp((x - maximum) / heat), finite count of x [N, BLOCK], [N] each."""
    top, low = tl.max(x, 1), tl.min(x, 1)
    base = tl.where(top > -_INF, top, 0.0)
    scale = tl.where(heat > 0, _LOG2_E / heat, _LOG2_E)
    total = tl.sum(tl.exp2((x - base[:, None]) * scale), 1)
    count = tl.full(top.shape, _BLOCK, tl.float32)
    if tl.min(low, 0) == -_INF:  # masked or past V; a block without -inf has the minimum and count above
        low, count = _of_finite(x)
    is_nan = (total != total) & (top < _INF)
    return tl.where(is_nan, float("nan"), top), low, total, count


@triton.jit(do_not_specialize=["size"])  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    logits, controls, facts, levels, marks, tokens, ended, width, stride, num_blocks, patches, size,
    BLOCKS: tl.constexpr, CUTS: tl.constexpr, HAS_PATCH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * _EACH + tl.arange(0, _EACH)
    ids = block[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
    mine, patch = logits + row * stride, patches + row * size
    x = _of_logits(mine, patch, ids, ids < width, width, HAS_PATCH)
    top, low, total, count = _of_facts(x, tl.load(controls + row * _CONTROLS + _HEAT).to(tl.float32))
    at, is_inside = facts + row * 4 * num_blocks + block, block < num_blocks
    tl.store(at, top, mask=is_inside)
    tl.store(at + num_blocks, low, mask=is_inside)
    tl.store(at + 2 * num_blocks, total, mask=is_inside)
    tl.store(at + 3 * num_blocks, count, mask=is_inside)
    tl.debug_barrier()  # every thread stores its facts before the counter is raised
    if tl.atomic_add(ended + row, 1) == tl.num_programs(1) - 1:
        tl.store(ended + row, 0)
        _of_row(
            row, mine, patch, facts, controls, levels, marks, tokens, width, num_blocks, BLOCKS, CUTS,
            HAS_PATCH,
        )  # fmt: skip


def all_facts_triton(
    logits: Tensor, controls: Tensor, cuts: bool, patches: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As all_facts_torch. Logits need contiguous rows."""
    rows, width = logits.shape
    blocks = triton.cdiv(width, BLOCK)
    facts = torch.empty((rows, 4, blocks), dtype=torch.float32, device=logits.device)
    levels, marks, tokens = row_tables(rows, logits.device)
    grid = (rows, triton.cdiv(blocks, EACH))
    sizes = {"BLOCKS": max(16, triton.next_power_of_2(blocks)), "CUTS": cuts}
    _kernel[grid](
        logits, controls, facts, levels, marks, tokens, counters(rows, logits.device), width,
        logits.stride(0), blocks, **patch_arguments(logits, patches), **sizes, **OPTIONS,
    )  # fmt: skip
    return facts, levels, marks, tokens
