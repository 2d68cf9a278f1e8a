"""The product with one order of sums for any number of rows, with Triton.

An output is the sum of its parts from the first to the last, and a part is the chain of the tensor core's
instructions over its inputs. Few rows: a program for each part, the last one of a tile adds them up. Many
rows: one program computes the parts in turn, for several tiles of rows, with the same instructions.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gencli.models.decoder.products.fixed import MAX_SPLIT_ROWS, OUTPUTS, ROWS, num_parts, num_tiles

__all__ = ["OPTIONS", "fixed_product_triton"]

# Fixed, as the defaults of Triton differ by release. In float32 a term is one fused instruction.
OPTIONS = {"num_warps": 4, "num_stages": 4, "enable_fp_fusion": True}
_MANY = {"num_warps": 8, "num_stages": 3}
_INPUTS = {2: 64, 4: 16}  # inputs of a tile, by the bytes of a weight: what registers hold
_TILES = {2: 4, 4: 2}  # tiles of rows of a program


@triton.jit
def _of_dot(weights, given, rows, num_rows, given_stride, at, is_inside, sums):  # type: ignore[no-untyped-def]
    """Return the sums [outputs, rows] with the products of some inputs `at` added."""
    is_there = is_inside & (rows[:, None] < num_rows)
    x = tl.load(given + rows.to(tl.int64)[:, None] * given_stride + at[None, :], mask=is_there, other=0.0)
    return tl.dot(weights, tl.trans(x), sums, input_precision="ieee")


@triton.jit  # type: ignore[untyped-decorator]
def _of_outputs(sums, bias, out, rows, outs, num_rows, outputs, HAS_BIAS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store the sums [rows, outputs] with the bias."""
    is_out = outs < outputs
    if HAS_BIAS:
        sums += tl.load(bias + outs, mask=is_out, other=0.0).to(tl.float32)[None, :]
    place = out + rows.to(tl.int64)[:, None] * outputs + outs[None, :]
    tl.store(place, sums.to(out.dtype.element_ty), mask=(rows[:, None] < num_rows) & is_out[None, :])


# A launch never looks at the number of rows: 1 and multiples of 16 would get kernels of their own.
@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _few(  # type: ignore[no-untyped-def]
    given, weights, bias, out, stored, arrived, num_rows, outputs, inputs, given_stride, weights_stride,
    PARTS: tl.constexpr, HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(2)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    outs = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    weight_rows = weights + tl.minimum(outs, outputs - 1).to(tl.int64)[:, None] * weights_stride
    blocks = tl.cdiv(inputs, INPUTS)
    sums = tl.zeros((OUTPUTS, ROWS), tl.float32)
    for block in range(part * blocks // PARTS, (part + 1) * blocks // PARTS):
        at = block * INPUTS + tl.arange(0, INPUTS)
        is_inside = at[None, :] < inputs
        some = tl.load(weight_rows + at[None, :], mask=is_inside, other=0.0)
        sums = _of_dot(some, given, rows, num_rows, given_stride, at, is_inside, sums)
    sums = tl.trans(sums)
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    if PARTS == 1:
        total += sums
    else:
        tile = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        cells = tl.arange(0, ROWS)[:, None] * OUTPUTS + tl.arange(0, OUTPUTS)[None, :]
        own = stored + tile.to(tl.int64) * (PARTS * ROWS * OUTPUTS) + cells
        is_row = rows[:, None] < num_rows
        tl.store(own + part * (ROWS * OUTPUTS), sums, mask=is_row)
        tl.debug_barrier()  # all threads have stored before one of them says so
        if tl.atomic_add(arrived + tile, 1, sem="acq_rel") != PARTS - 1:
            return
        for one in range(PARTS):  # past the L1 cache, which does not see other programs
            total += tl.load(own + one * (ROWS * OUTPUTS), mask=is_row, other=0.0, cache_modifier=".cg")
        tl.store(arrived + tile, 0)
    _of_outputs(total, bias, out, rows, outs, num_rows, outputs, HAS_BIAS)


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _many(  # type: ignore[no-untyped-def]
    given, weights, bias, out, num_rows, outputs, inputs, given_stride, weights_stride,
    TILES: tl.constexpr, PARTS: tl.constexpr, HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * (TILES * ROWS) + tl.arange(0, ROWS)
    outs = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    weight_rows = weights + tl.minimum(outs, outputs - 1).to(tl.int64)[:, None] * weights_stride
    blocks = tl.cdiv(inputs, INPUTS)
    zeros = tl.zeros((OUTPUTS, ROWS), tl.float32)
    totals = (zeros,) * TILES
    for part in range(PARTS):
        sums = (zeros,) * TILES
        for block in range(part * blocks // PARTS, (part + 1) * blocks // PARTS):
            at = block * INPUTS + tl.arange(0, INPUTS)
            is_inside = at[None, :] < inputs
            some = tl.load(weight_rows + at[None, :], mask=is_inside, other=0.0)
            made = ()
            for tile in tl.static_range(TILES):
                own = rows + tile * ROWS
                made += (_of_dot(some, given, own, num_rows, given_stride, at, is_inside, sums[tile]),)  # type: ignore[assignment]
            sums = made
        made = ()
        for tile in tl.static_range(TILES):
            made += (totals[tile] + sums[tile],)  # type: ignore[assignment]
        totals = made
    for tile in tl.static_range(TILES):
        own = rows + tile * ROWS
        _of_outputs(tl.trans(totals[tile]), bias, out, own, outs, num_rows, outputs, HAS_BIAS)


def fixed_product_triton(given: Tensor, weight: Tensor, bias: Tensor | None, arrived: Tensor) -> Tensor:
    """As fixed_product_torch. All inputs are contiguous; `arrived` has a zero for each tile of few rows."""
    (count, inputs), outputs = given.shape, len(weight)
    out = given.new_empty(count, outputs)
    if not count:
        return out
    parts, size = num_parts(outputs, inputs), weight.element_size()
    tiles = num_tiles(outputs)
    sizes = (count, outputs, inputs, given.stride(0), weight.stride(0))
    constants: dict[str, Any] = {"PARTS": parts, "HAS_BIAS": bias is not None}
    constants |= {"ROWS": ROWS, "OUTPUTS": OUTPUTS, "INPUTS": _INPUTS[size]}
    if count <= MAX_SPLIT_ROWS:
        across = triton.cdiv(count, ROWS)
        cells = across * tiles * parts * ROWS * OUTPUTS if parts > 1 else 1
        stored = torch.empty(cells, dtype=torch.float32, device=given.device)
        _few[across, tiles, parts](given, weight, bias, out, stored, arrived, *sizes, **constants, **OPTIONS)
    else:
        across = triton.cdiv(count, _TILES[size] * ROWS)
        _many[across, tiles](
            given, weight, bias, out, *sizes, TILES=_TILES[size], **constants, **OPTIONS | _MANY
        )
    return out
