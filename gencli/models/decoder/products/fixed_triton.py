"""The product with one order of sums for any number of rows, with Triton.

An output is the sum of its parts from the first to the last, and a part is the chain of the tensor core's
instructions over its inputs. Few rows: a program for each part, the last one of a tile adds them up. Many
rows: one program computes the parts in turn, for several tiles of rows, with the same instructions.

For a mixture of experts the rows of a tile are those of one expert, as a table on the device says.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["OPTIONS"]

# Fixed, as the defaults of Triton differ by release. In float32 a term is one fused instruction.
OPTIONS = {"num_warps": 4, "num_stages": 4, "enable_fp_fusion": True}


@triton.jit  # type: ignore[untyped-decorator]
def _of_weights(  # type: ignore[no-untyped-def]
    weights, scales, zeros, given, outs, outputs, inputs, stride, block,
    BITS: tl.constexpr, INPUTS: tl.constexpr, GROUP: tl.constexpr, MIDDLE: tl.constexpr,
):  # fmt: skip
    """Return weights [outputs, INPUTS] of a block of inputs in the format of `given`, absent ones zero."""
    own = tl.minimum(outs, outputs - 1).to(tl.int64)[:, None]
    if BITS == 4:
        at = block * (INPUTS // 2) + tl.arange(0, INPUTS // 2)
        is_inside = at[None, :] < inputs // 2
        pairs = tl.load(weights + own * stride + at[None, :], mask=is_inside, other=0)
        groups = block * (INPUTS // GROUP) + tl.arange(0, INPUTS // GROUP)
        place, is_group = own * (inputs // GROUP) + groups[None, :], groups[None, :] < inputs // GROUP
        if zeros is None:  # MXFP4, whose scale is the exponent of a float
            power = tl.load(scales + place, mask=is_group, other=0).to(tl.int32) << 23
            scale = power.to(tl.float32, bitcast=True) * 16384.0
            codes = tl.join(pairs & 15, pairs >> 4).reshape(outs.shape[0], INPUTS // GROUP, GROUP)
            # A float16 with the same bits of exponent and fraction is 2^14 times smaller.
            half = ((codes.to(tl.int16) & 8) << 12) | ((codes.to(tl.int16) & 7) << 9)
            made = half.to(tl.float16, bitcast=True).to(tl.float32) * scale[:, :, None]
        else:
            scale = tl.load(scales + place, mask=is_group, other=0.0).to(tl.float32)
            zero = tl.load(zeros + place, mask=is_group, other=0.0).to(tl.float32)
            codes = tl.join(pairs & 15, pairs >> 4).reshape(outs.shape[0], INPUTS // GROUP, GROUP)
            made = (codes.to(tl.float32) - MIDDLE) * scale[:, :, None] + zero[:, :, None]
        made = made.reshape(outs.shape[0], INPUTS)
    else:
        at = block * INPUTS + tl.arange(0, INPUTS)
        made = tl.load(weights + own * stride + at[None, :], mask=at[None, :] < inputs, other=0)
    return made.to(given.dtype.element_ty)


@triton.jit
def _of_dot(weights, given, rows, num_rows, given_stride, at, is_inside, sums):  # type: ignore[no-untyped-def]
    """Return the sums [outputs, rows] with the products of some inputs `at` added."""
    is_there = is_inside & (rows[:, None] < num_rows)
    x = tl.load(given + rows.to(tl.int64)[:, None] * given_stride + at[None, :], mask=is_there, other=0.0)
    return tl.dot(weights, tl.trans(x), sums, input_precision="ieee")


@triton.jit  # type: ignore[untyped-decorator]
def _of_outputs(  # type: ignore[no-untyped-def]
    sums, scales, bias, out, rows, outs, num_rows, outputs, BITS: tl.constexpr, HAS_BIAS: tl.constexpr
):
    """Store the sums [rows, outputs], with the scale of an output and the bias."""
    is_out = outs < outputs
    if BITS == 8:
        sums *= tl.load(scales + outs, mask=is_out, other=0.0)[None, :]
    if HAS_BIAS:
        sums += tl.load(bias + outs, mask=is_out, other=0.0).to(tl.float32)[None, :]
    place = out + rows.to(tl.int64)[:, None] * outputs + outs[None, :]
    tl.store(place, sums.to(out.dtype.element_ty), mask=(rows[:, None] < num_rows) & is_out[None, :])


@triton.jit
def _of_list(lists, start, at, count, absent):  # type: ignore[no-untyped-def]
    """Return the pairs at some places of an expert's list, and `absent` for places that it lacks."""
    return tl.where(at < count, tl.load(lists + start + at, mask=at < count, other=0), absent)


# A launch never looks at the number of rows: 1 and multiples of 16 would get kernels of their own.
@triton.jit(do_not_specialize=["num_rows", "list_size"])  # type: ignore[untyped-decorator]
def _few(  # type: ignore[no-untyped-def]
    given, weights, scales, zeros, bias, out, stored, arrived, lists, tiles,
    num_rows, list_size, outputs, inputs, given_stride, weights_stride,
    BITS: tl.constexpr, PARTS: tl.constexpr, HAS_BIAS: tl.constexpr, FAN: tl.constexpr, ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, GROUP: tl.constexpr, MIDDLE: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(2)
    if tiles is None:
        pairs = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        rows = pairs
    else:
        entry = tiles + tl.program_id(0) * 3
        expert, first, count = tl.load(entry).to(tl.int64), tl.load(entry + 1), tl.load(entry + 2)
        if count == 0:
            return
        # In line, as Triton 3.6 returns no tuple from a function that holds a None (scales, zeros).
        weights += expert * outputs * weights_stride
        if BITS == 8:
            scales += expert * outputs
        if BITS == 4:
            scales += expert * outputs * (inputs // GROUP)
            if zeros is not None:
                zeros += expert * outputs * (inputs // GROUP)
        if HAS_BIAS:
            bias += expert * outputs
        pairs = _of_list(lists, expert * list_size + first, tl.arange(0, ROWS), count, num_rows * FAN)
        rows = pairs // FAN
    outs = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    blocks = tl.cdiv(inputs, INPUTS)
    sums = tl.zeros((OUTPUTS, ROWS), tl.float32)
    for block in range(part * blocks // PARTS, (part + 1) * blocks // PARTS):
        at = block * INPUTS + tl.arange(0, INPUTS)
        is_inside = at[None, :] < inputs
        some = _of_weights(
            weights, scales, zeros, given, outs, outputs, inputs, weights_stride, block,
            BITS, INPUTS, GROUP, MIDDLE,
        )  # fmt: skip
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
    _of_outputs(total, scales, bias, out, pairs, outs, num_rows * FAN, outputs, BITS, HAS_BIAS)


@triton.jit(do_not_specialize=["num_rows", "list_size"])  # type: ignore[untyped-decorator]
def _many(  # type: ignore[no-untyped-def]
    given, weights, scales, zeros, bias, out, lists, tiles,
    num_rows, list_size, outputs, inputs, given_stride, weights_stride,
    TILES: tl.constexpr, BITS: tl.constexpr, PARTS: tl.constexpr, HAS_BIAS: tl.constexpr, FAN: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, GROUP: tl.constexpr,
    MIDDLE: tl.constexpr,
):  # fmt: skip
    pairs = ()
    if tiles is None:
        rows = tl.program_id(0) * (TILES * ROWS) + tl.arange(0, ROWS)
        for tile in tl.static_range(TILES):
            pairs += (rows + tile * ROWS,)  # type: ignore[assignment]
    else:
        entry = tiles + tl.program_id(0) * 3
        expert, first, count = tl.load(entry).to(tl.int64), tl.load(entry + 1), tl.load(entry + 2)
        if count == 0:
            return
        # In line, as Triton 3.6 returns no tuple from a function that holds a None (scales, zeros).
        weights += expert * outputs * weights_stride
        if BITS == 8:
            scales += expert * outputs
        if BITS == 4:
            scales += expert * outputs * (inputs // GROUP)
            if zeros is not None:
                zeros += expert * outputs * (inputs // GROUP)
        if HAS_BIAS:
            bias += expert * outputs
        for tile in tl.static_range(TILES):
            places = tile * ROWS + tl.arange(0, ROWS)
            pairs += (_of_list(lists, expert * list_size + first, places, count, num_rows * FAN),)  # type: ignore[assignment]
    outs = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    blocks = tl.cdiv(inputs, INPUTS)
    empty = tl.zeros((OUTPUTS, ROWS), tl.float32)
    totals = (empty,) * TILES
    for part in range(PARTS):
        sums = (empty,) * TILES
        for block in range(part * blocks // PARTS, (part + 1) * blocks // PARTS):
            at = block * INPUTS + tl.arange(0, INPUTS)
            is_inside = at[None, :] < inputs
            some = _of_weights(
                weights, scales, zeros, given, outs, outputs, inputs, weights_stride, block,
                BITS, INPUTS, GROUP, MIDDLE,
            )  # fmt: skip
            made = ()
            for tile in tl.static_range(TILES):
                own = pairs[tile] // FAN
                made += (_of_dot(some, given, own, num_rows, given_stride, at, is_inside, sums[tile]),)  # type: ignore[assignment]
            sums = made
        made = ()
        for tile in tl.static_range(TILES):
            made += (totals[tile] + sums[tile],)  # type: ignore[assignment]
        totals = made
    for tile in tl.static_range(TILES):
        made = tl.trans(totals[tile])
        _of_outputs(made, scales, bias, out, pairs[tile], outs, num_rows * FAN, outputs, BITS, HAS_BIAS)
