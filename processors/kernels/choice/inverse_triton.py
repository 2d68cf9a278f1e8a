"""The kernels of the draw by inverse CDF: block_weights and invert_ids.

`_weights`, grid (R, ceil(B / EACH)): a program sums exp over the kept logits of EACH blocks of a row.
`_invert`, grid (R,): a program finds the block and then the id at which the cumulative weights exceed
u * total. The uniform number u is the twin's; sums are float32 within a block and float64 across blocks and
for the id, so a token may differ from the twin's only where u falls within the rounding of a sum.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.facts_triton import EACH
from processors.kernels.choice.parts_triton import (
    _of_cooled,
    _of_logits,
    _of_mix,
    _of_order,
    _of_row_key,
    _of_top,
    _of_uniform,
    patch_arguments,
)
from processors.kernels.choice.tables import Control, Level, Mark
from processors.rng import GAMMA, Stream, signed
from processors.sampler import BLOCK

__all__ = ["OPTIONS", "block_weights_triton", "invert_ids_triton"]

OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF = tl.constexpr(float("inf"))
_BLOCK, _EACH = tl.constexpr(BLOCK), tl.constexpr(EACH)
_CONTROLS, _LEVELS, _MARKS = tl.constexpr(len(Control)), tl.constexpr(len(Level)), tl.constexpr(len(Mark))
_HEAT_CUT, _HEAT_DRAW, _INVERSE = (
    tl.constexpr(int(Control[name])) for name in ("HEAT_CUT", "HEAT_DRAW", "INVERSE")
)
_PEAK = tl.constexpr(int(Level.PEAK))
_FAULT, _LEAST = tl.constexpr(int(Mark.FAULT)), tl.constexpr(int(Mark.LEAST))
_TOKEN = tl.constexpr(signed(Stream.TOKEN * GAMMA))


@triton.jit  # type: ignore[untyped-decorator]
def _of_left(  # type: ignore[no-untyped-def]
    row, patch, ids, width, controls, peak, least, HAS_PATCH: tl.constexpr
):
    """Kept logits of `row` at ids at the temperature of the draw; -inf for the others."""
    cut_heat = tl.load(controls + _HEAT_CUT).to(tl.float32)
    heat = tl.load(controls + _HEAT_DRAW).to(tl.float32)
    x = _of_logits(row, patch, ids, ids < width, width, HAS_PATCH)
    is_kept = (x > -_INF) & (_of_order(_of_cooled(x, peak, cut_heat), ids) >= least)
    return tl.where(is_kept, _of_cooled(x, peak, heat), -_INF)


@triton.jit
def _of_place(weights, place, share):  # type: ignore[no-untyped-def]
    """Index at which the cumulative weights exceed share * total, and the share within it, as `invert`."""
    sums = tl.cumsum(weights, 0)
    target = share * tl.max(sums, 0)
    last = tl.max(tl.where(weights > 0, place, 0), 0)
    first = tl.min(tl.where((sums > target) & (weights > 0), place, last), 0)
    weight = tl.sum(tl.where(place == first, weights, 0.0), 0)
    rest = (target - tl.sum(tl.where(place == first, sums, 0.0), 0) + weight) / weight
    return first, tl.minimum(tl.maximum(rest, 0.0), 1.0)


@triton.jit(do_not_specialize=["size"])  # type: ignore[untyped-decorator]
def _weights(  # type: ignore[no-untyped-def]
    logits, controls, levels, marks, weights, width, stride, num_blocks, patches, size,
    HAS_PATCH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    controls, marks = controls + row * _CONTROLS, marks + row * _MARKS
    block = tl.program_id(1) * _EACH + tl.arange(0, _EACH)
    total = tl.zeros((_EACH,), tl.float32)
    if (tl.load(controls + _INVERSE) > 0) & (tl.load(marks + _FAULT) == 0):
        peak = tl.load(levels + row * _LEVELS + _PEAK).to(tl.float32)
        ids = block[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
        values = _of_left(
            logits + row * stride, patches + row * size, ids, width, controls, peak, tl.load(marks + _LEAST),
            HAS_PATCH,
        )  # fmt: skip
        total = tl.sum(tl.exp(values - _of_top(peak, tl.load(controls + _HEAT_DRAW))), 1)
    tl.store(weights + row * num_blocks + block, total, mask=block < num_blocks)


@triton.jit(do_not_specialize=["size"])  # type: ignore[untyped-decorator]
def _invert(  # type: ignore[no-untyped-def]
    logits, controls, levels, marks, weights, seeds, positions, tokens, width, stride, num_blocks, patches,
    size, BLOCKS: tl.constexpr, HAS_PATCH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    controls, marks = controls + row * _CONTROLS, marks + row * _MARKS
    if (tl.load(controls + _INVERSE) > 0) & (tl.load(marks + _FAULT) == 0):
        key = _of_row_key(tl.load(seeds + row), tl.load(positions + row), _TOKEN)
        place = tl.arange(0, BLOCKS)
        found = tl.load(weights + row * num_blocks + place, mask=place < num_blocks, other=0.0)
        u = _of_uniform(_of_mix(key))  # the uniform number of id 0
        block, rest = _of_place(found.to(tl.float64), place, u)
        peak = tl.load(levels + row * _LEVELS + _PEAK).to(tl.float32)
        inner = tl.arange(0, _BLOCK)
        ids = block * _BLOCK + inner
        values = _of_left(
            logits + row * stride, patches + row * size, ids, width, controls, peak, tl.load(marks + _LEAST),
            HAS_PATCH,
        )  # fmt: skip
        values = values.to(tl.float64)
        choice, _ = _of_place(tl.exp(values - tl.max(values, 0)), inner, rest)
        tl.store(tokens + row, (block * _BLOCK + choice).to(tl.int64))


def block_weights_triton(
    logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, patches: Tensor | None = None
) -> Tensor:
    """As block_weights_torch."""
    rows, width = logits.shape
    blocks = triton.cdiv(width, BLOCK)
    weights = torch.empty((rows, blocks), dtype=torch.float32, device=logits.device)
    grid = (rows, triton.cdiv(blocks, EACH))
    _weights[grid](
        logits, controls, levels, marks, weights, width, logits.stride(0), blocks,
        **patch_arguments(logits, patches), **OPTIONS,
    )  # fmt: skip
    return weights


def invert_ids_triton(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    marks: Tensor,
    weights: Tensor,
    seeds: Tensor,
    positions: Tensor,
    tokens: Tensor,
    patches: Tensor | None = None,
) -> None:
    """As invert_ids_torch."""
    rows, width = logits.shape
    blocks = weights.shape[1]
    _invert[(rows,)](
        logits, controls, levels, marks, weights, seeds, positions, tokens, width, logits.stride(0), blocks,
        **patch_arguments(logits, patches), BLOCKS=max(16, triton.next_power_of_2(blocks)), **OPTIONS,
    )  # fmt: skip
