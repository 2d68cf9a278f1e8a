"""A histogram of each row with Triton, and the bins that decide its cut."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.parts import CAPACITY, NUM_BINS, Control, Level, Mark
from processors.kernels.choice.parts_triton import (
    _of_bin,
    _of_cooled,
    _of_key,
    _of_mass,
    _of_order,
    _of_value,
)
from processors.sampler import BLOCK

__all__ = ["EACH", "OPTIONS", "fill_bins_triton", "find_window_triton"]

EACH = 2  # blocks per program of a histogram: few, as many GPUs are slow in float64
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF, _INT_MIN = tl.constexpr(float("inf")), tl.constexpr(-(2**63))
_BLOCK, _EACH, _NUM_BINS, _CAPACITY = (tl.constexpr(one) for one in (BLOCK, EACH, NUM_BINS, CAPACITY))
_CONTROLS, _LEVELS, _MARKS = tl.constexpr(len(Control)), tl.constexpr(len(Level)), tl.constexpr(len(Mark))
_HEAT, _MIN_P, _TOP_K, _TOP_P, _EXCLUSIVE, _IS_K_LATE, _IS_MIN_LATE = (
    tl.constexpr(int(Control[name]))
    for name in ("HEAT_CUT", "MIN_P", "TOP_K", "TOP_P", "EXCLUSIVE", "IS_K_LATE", "IS_MIN_LATE")
)
_PEAK, _PER_UNIT, _UNIT = (tl.constexpr(int(one)) for one in Level)
_IS_CUT, _FROM, _MIN_P_LEAST, _TOTAL = (
    tl.constexpr(int(Mark[name])) for name in ("IS_CUT", "FROM", "MIN_P_LEAST", "TOTAL")
)
_FIRST_BIN, _LAST_BIN, _COUNT_BEFORE, _MASS_BEFORE, _IN_BINS = (
    tl.constexpr(int(Mark[name]))
    for name in ("FIRST_BIN", "LAST_BIN", "COUNT_BEFORE", "MASS_BEFORE", "IN_BINS")
)


@triton.jit
def _fill(  # type: ignore[no-untyped-def]
    logits, controls, levels, facts, marks, bins, width, stride, num_blocks
):
    row = tl.program_id(0).to(tl.int64)
    controls, marks, levels = controls + row * _CONTROLS, marks + row * _MARKS, levels + row * _LEVELS
    heat, peak = tl.load(controls + _HEAT).to(tl.float32), tl.load(levels + _PEAK).to(tl.float32)
    p = tl.load(controls + _TOP_P)
    is_mass_listed = (tl.load(controls + _TOP_K) > 0) & (tl.load(controls + _IS_K_LATE) == 0)
    weighs = (p < 1) & (is_mass_listed == 0)
    begin = tl.load(marks + _FROM)
    block = tl.program_id(1) * _EACH + tl.arange(0, _EACH)
    best = tl.max(tl.load(facts + row * 4 * num_blocks + block, mask=block < num_blocks, other=-_INF), 0)
    has_some = (best > -_INF) & (_of_key(_of_cooled(best, peak, heat)) >= (begin >> 32))
    if (tl.load(marks + _IS_CUT) > 0) & (weighs | has_some):
        ids = tl.program_id(1) * _EACH * _BLOCK + tl.arange(0, _EACH * _BLOCK)
        x = tl.load(logits + row * stride + ids, mask=ids < width, other=-_INF).to(tl.float32)
        value = _of_cooled(x, peak, heat)
        order = _of_order(value, ids)
        is_candidate = (x > -_INF) & (order >= begin)
        at = bins + row * 2 * _NUM_BINS + _of_bin(value, peak, heat, tl.load(levels + _PER_UNIT))
        tl.atomic_add(at, tl.full((_EACH * _BLOCK,), 1, tl.int64), mask=is_candidate)
        if weighs:
            mass = _of_mass(value, peak, heat, tl.load(levels + _UNIT))
            least = tl.where(tl.load(controls + _IS_MIN_LATE) > 0, _INT_MIN, tl.load(marks + _MIN_P_LEAST))
            is_part = (x > -_INF) & (order >= least)
            tl.atomic_add(marks + _TOTAL, tl.sum(tl.where(is_part, mass, 0), 0))
            tl.atomic_add(at + _NUM_BINS, mass, mask=is_candidate)


@triton.jit
def _window(bins, controls, levels, marks):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    controls, marks, levels = controls + row * _CONTROLS, marks + row * _MARKS, levels + row * _LEVELS
    k, p = tl.load(controls + _TOP_K), tl.load(controls + _TOP_P)
    is_listed = (k > 0) & (tl.load(controls + _IS_K_LATE) == 0) & (p < 1)
    place = tl.arange(0, _NUM_BINS)
    counts = tl.load(bins + row * 2 * _NUM_BINS + place)
    weights = tl.load(bins + row * 2 * _NUM_BINS + _NUM_BINS + place)
    count, mass = tl.cumsum(counts, 0), tl.cumsum(weights, 0)
    end: tl.constexpr = _NUM_BINS - 1
    last = tl.full((), end, tl.int32)
    if tl.sum(counts, 0) > _CAPACITY:
        if k > 0:
            last = tl.min(tl.where(count.to(tl.float64) >= k, place, end), 0)
        if (p < 1) & (is_listed == 0):
            goal = tl.load(marks + _TOTAL).to(tl.float64) * p
            is_exclusive = tl.load(controls + _EXCLUSIVE) > 0
            crossed = tl.min(tl.where(mass.to(tl.float64) >= goal, place, end), 0)
            beyond = tl.min(tl.where(mass.to(tl.float64) > goal, place, end), 0)
            last = tl.minimum(last, tl.where(is_exclusive, beyond, crossed))
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


def fill_bins_triton(
    logits: Tensor, controls: Tensor, levels: Tensor, facts: Tensor, marks: Tensor, bins: Tensor
) -> None:
    """As fill_bins_torch."""
    rows, width = logits.shape
    blocks = facts.shape[2]
    grid = (rows, triton.cdiv(blocks, EACH))
    _fill[grid](logits, controls, levels, facts, marks, bins, width, logits.stride(0), blocks, **OPTIONS)


def find_window_triton(bins: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> None:
    """As find_window_torch."""
    _window[(len(bins),)](bins, controls, levels, marks, **OPTIONS)
