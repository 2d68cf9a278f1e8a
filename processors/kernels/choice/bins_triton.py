"""The kernel of find_window: histogram of the candidates of open rows, and the bins with the threshold.

Grid (R, programs). Programs of a row share its blocks, EACH at a time, skip those whose maximum is no
candidate, and add counts and masses to the row's bins by atomics. The program that finishes last sums up the
bins and stores the marks. Integer sums make the bins those of the twin, whatever the order of the atomics.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.listed_triton import num_programs
from processors.kernels.choice.masses_triton import _of_mass
from processors.kernels.choice.parts_triton import (
    _of_bin,
    _of_cooled,
    _of_cooled_soon,
    _of_floor,
    _of_goal,
    _of_logits,
    _of_value,
    patch_arguments,
)
from processors.kernels.choice.tables import CAPACITY, NUM_BINS, OPEN, Control, Level, Mark, powers
from processors.sampler import BLOCK

__all__ = ["EACH", "OPTIONS", "find_window_triton"]

EACH = 2  # blocks per iteration
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF, _OPEN = tl.constexpr(float("inf")), tl.constexpr(OPEN)
_BLOCK, _EACH, _NUM_BINS, _CAPACITY = (tl.constexpr(one) for one in (BLOCK, EACH, NUM_BINS, CAPACITY))
_CONTROLS, _LEVELS, _MARKS = tl.constexpr(len(Control)), tl.constexpr(len(Level)), tl.constexpr(len(Mark))
_HEAT, _MIN_P, _TOP_K, _TOP_P, _EXCLUSIVE, _IS_K_LATE, _IS_MIN_LATE = (
    tl.constexpr(int(Control[name]))
    for name in ("HEAT_CUT", "MIN_P", "TOP_K", "TOP_P", "EXCLUSIVE", "IS_K_LATE", "IS_MIN_LATE")
)
_PEAK, _PER_UNIT, _UNIT, _RATE = (tl.constexpr(int(one)) for one in Level)
_FROM, _MIN_P_LEAST, _TOTAL, _ENDED = (
    tl.constexpr(int(Mark[name])) for name in ("FROM", "MIN_P_LEAST", "TOTAL", "ENDED")
)
_FIRST_BIN, _LAST_BIN, _COUNT_BEFORE, _MASS_BEFORE, _IN_BINS = (
    tl.constexpr(int(Mark[name]))
    for name in ("FIRST_BIN", "LAST_BIN", "COUNT_BEFORE", "MASS_BEFORE", "IN_BINS")
)


@triton.jit  # type: ignore[untyped-decorator]
def _of_fill(  # type: ignore[no-untyped-def]
    first,
    row,
    patch,
    facts,
    controls,
    levels,
    marks,
    bins,
    powers,
    width,
    num_blocks,
    HAS_PATCH: tl.constexpr,
):
    """Add the candidates of EACH blocks to the row's bins: counts, then masses."""
    heat, peak = tl.load(controls + _HEAT).to(tl.float32), tl.load(levels + _PEAK).to(tl.float32)
    is_mass_listed = (tl.load(controls + _TOP_K) > 0) & (tl.load(controls + _IS_K_LATE) == 0)
    begin = _of_floor(tl.load(marks + _FROM))
    block = first + tl.arange(0, _EACH)
    best = tl.max(tl.load(facts + block, mask=block < num_blocks, other=-_INF), 0)
    if _of_cooled(best, peak, heat) >= begin:
        ids = first * _BLOCK + tl.arange(0, _EACH * _BLOCK)
        x = _of_logits(row, patch, ids, ids < width, width, HAS_PATCH)
        value = _of_cooled_soon(x, peak, heat, tl.load(levels + _RATE).to(tl.float32))
        is_candidate = value >= begin
        at = bins + _of_bin(value, peak, heat, tl.load(levels + _PER_UNIT))
        tl.atomic_add(at, tl.full((_EACH * _BLOCK,), 1, tl.int64), mask=is_candidate, sem="relaxed")
        if (tl.load(controls + _TOP_P) < 1) & (is_mass_listed == 0):
            mass = _of_mass(value, peak, heat, tl.load(levels + _UNIT).to(tl.int32), powers)
            tl.atomic_add(at + _NUM_BINS, mass, mask=is_candidate, sem="relaxed")


@triton.jit
def _of_window(bins, controls, levels, marks):  # type: ignore[no-untyped-def]
    """Store the marks of the bins that are listed, as `_window` of bins.py."""
    k, p = tl.load(controls + _TOP_K), tl.load(controls + _TOP_P)
    is_listed = (k > 0) & (tl.load(controls + _IS_K_LATE) == 0) & (p < 1)
    place = tl.arange(0, _NUM_BINS)
    counts, weights = tl.load(bins + place), tl.load(bins + _NUM_BINS + place)
    end: tl.constexpr = _NUM_BINS - 1
    last = tl.full((), end, tl.int32)
    if k > 0:
        last = tl.min(tl.where(tl.cumsum(counts, 0) >= k.to(tl.int64), place, end), 0)
    if (p < 1) & (is_listed == 0):
        goal = _of_goal(tl.load(marks + _TOTAL), p, tl.load(controls + _EXCLUSIVE) > 0)
        last = tl.minimum(last, tl.min(tl.where(tl.cumsum(weights, 0) >= goal, place, end), 0))
    if (tl.load(controls + _MIN_P) > 0) & ((is_listed & (tl.load(controls + _IS_MIN_LATE) > 0)) == 0):
        value = _of_value((tl.load(marks + _MIN_P_LEAST) >> 32).to(tl.int32))
        heat, peak = tl.load(controls + _HEAT).to(tl.float32), tl.load(levels + _PEAK).to(tl.float32)
        last = tl.minimum(last, _of_bin(value, peak, heat, tl.load(levels + _PER_UNIT)))
    up_to = tl.sum(tl.where(place <= last, counts, 0), 0)
    inside = tl.sum(tl.where(place == last, counts, 0), 0)
    is_narrow = (up_to > _CAPACITY) & (is_listed == 0) & (inside <= _CAPACITY)
    before = tl.where(is_narrow, up_to - inside, 0)
    tl.store(marks + _FIRST_BIN, tl.where(is_narrow, last, 0).to(tl.int64))
    tl.store(marks + _LAST_BIN, last.to(tl.int64))
    tl.store(marks + _COUNT_BEFORE, before)
    tl.store(marks + _MASS_BEFORE, tl.where(is_narrow, tl.sum(tl.where(place < last, weights, 0), 0), 0))
    tl.store(marks + _IN_BINS, up_to - before)


@triton.jit(do_not_specialize=["size"])  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    logits, controls, levels, facts, marks, lists, powers, tokens, width, stride, num_blocks, patches, size,
    HAS_PATCH: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64)
    if tl.load(tokens + place) == _OPEN:
        controls, levels = controls + place * _CONTROLS, levels + place * _LEVELS
        marks, bins = marks + place * _MARKS, lists + (place * 2 + 1) * _CAPACITY
        row, patch, facts = logits + place * stride, patches + place * size, facts + place * 4 * num_blocks
        for first in range(tl.program_id(1) * _EACH, num_blocks, tl.num_programs(1) * _EACH):
            _of_fill(
                first, row, patch, facts, controls, levels, marks, bins, powers, width, num_blocks, HAS_PATCH
            )
        tl.debug_barrier()  # every thread adds before the counter is raised
        if tl.atomic_add(marks + _ENDED, 1) == tl.num_programs(1) - 1:
            tl.store(marks + _ENDED, 0)
            _of_window(bins, controls, levels, marks)


def find_window_triton(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    facts: Tensor,
    marks: Tensor,
    lists: Tensor,
    tokens: Tensor,
    patches: Tensor | None = None,
) -> None:
    """As find_window_torch."""
    (rows, width), blocks = logits.shape, facts.shape[2]
    grid = (rows, num_programs(rows, blocks, EACH))
    _kernel[grid](
        logits, controls, levels, facts, marks, lists, powers(logits.device), tokens, width, logits.stride(0),
        blocks, **patch_arguments(logits, patches), **OPTIONS,
    )  # fmt: skip
