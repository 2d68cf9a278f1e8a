"""The cut of each row with Triton: found by halving the range in which its order lies."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.facts_triton import EACH
from processors.kernels.choice.parts import CAPACITY, Control, Level, Mark
from processors.kernels.choice.parts_triton import (
    _of_bin,
    _of_cooled,
    _of_key,
    _of_mass,
    _of_order,
    _of_value,
)
from processors.sampler import BLOCK

__all__ = ["OPTIONS", "collect_triton", "cut_triton"]

OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF, _INT_MIN = tl.constexpr(float("inf")), tl.constexpr(-(2**63))
_BLOCK, _EACH, _CAPACITY = (tl.constexpr(one) for one in (BLOCK, EACH, CAPACITY))
_CONTROLS, _LEVELS, _MARKS = tl.constexpr(len(Control)), tl.constexpr(len(Level)), tl.constexpr(len(Mark))
_HEAT, _MIN_P, _TOP_K, _KEEP_TIES, _TOP_P, _EXCLUSIVE, _IS_K_LATE, _IS_MIN_LATE = (
    tl.constexpr(int(Control[name]))
    for name in ("HEAT_CUT", "MIN_P", "TOP_K", "KEEP_TIES", "TOP_P", "EXCLUSIVE", "IS_K_LATE", "IS_MIN_LATE")
)
_PEAK, _PER_UNIT, _UNIT = (tl.constexpr(int(one)) for one in Level)
_LEAST, _COUNT, _IS_CUT, _FROM, _MIN_P_LEAST, _TOTAL = (
    tl.constexpr(int(Mark[name])) for name in ("LEAST", "COUNT", "IS_CUT", "FROM", "MIN_P_LEAST", "TOTAL")
)
_FIRST_BIN, _LAST_BIN, _COUNT_BEFORE, _MASS_BEFORE, _IN_BINS, _COLLECTED = (
    tl.constexpr(int(Mark[name]))
    for name in ("FIRST_BIN", "LAST_BIN", "COUNT_BEFORE", "MASS_BEFORE", "IN_BINS", "COLLECTED")
)


@triton.jit
def _collect(  # type: ignore[no-untyped-def]
    logits, controls, levels, facts, marks, listed, width, stride, num_blocks
):
    row = tl.program_id(0).to(tl.int64)
    controls, marks, levels = controls + row * _CONTROLS, marks + row * _MARKS, levels + row * _LEVELS
    heat, peak = tl.load(controls + _HEAT).to(tl.float32), tl.load(levels + _PEAK).to(tl.float32)
    begin, per_unit = tl.load(marks + _FROM), tl.load(levels + _PER_UNIT)
    first, last = tl.load(marks + _FIRST_BIN), tl.load(marks + _LAST_BIN)
    block = tl.program_id(1) * _EACH + tl.arange(0, _EACH)
    best = tl.max(tl.load(facts + row * 4 * num_blocks + block, mask=block < num_blocks, other=-_INF), 0)
    value = _of_cooled(best, peak, heat)
    has_some = (
        (best > -_INF) & (_of_key(value) >= (begin >> 32)) & (_of_bin(value, peak, heat, per_unit) <= last)
    )
    if (tl.load(marks + _IS_CUT) > 0) & (tl.load(marks + _IN_BINS) <= _CAPACITY) & has_some:
        ids = tl.program_id(1) * _EACH * _BLOCK + tl.arange(0, _EACH * _BLOCK)
        x = tl.load(logits + row * stride + ids, mask=ids < width, other=-_INF).to(tl.float32)
        values = _of_cooled(x, peak, heat)
        orders, place = _of_order(values, ids), _of_bin(values, peak, heat, per_unit)
        is_here = (x > -_INF) & (orders >= begin) & (place >= first) & (place <= last)
        number = tl.sum(is_here.to(tl.int64), 0)
        if number > 0:
            start = tl.atomic_add(marks + _COLLECTED, number)
            at = start + tl.cumsum(is_here.to(tl.int32), 0) - 1
            tl.store(listed + row * _CAPACITY + at, orders, mask=is_here)


@triton.jit  # type: ignore[untyped-decorator]
def _of_sum(  # type: ignore[no-untyped-def]
    orders, weights, row, width, peak, heat, unit, least, IS_MASS: tl.constexpr, FROM_ROW: tl.constexpr
):
    """The mass, or the number, of the logits from an order on: of the list, or of the row at `row`."""
    total = tl.full((), 0, tl.int64)
    if FROM_ROW:
        for start in range(0, width, _CAPACITY):
            ids = start + tl.arange(0, _CAPACITY)
            x = tl.load(row + ids, mask=ids < width, other=-_INF).to(tl.float32)
            value = _of_cooled(x, peak, heat)
            is_in = (x > -_INF) & (_of_order(value, ids) >= least)
            if IS_MASS:
                total += tl.sum(tl.where(is_in, _of_mass(value, peak, heat, unit), 0), 0)
            else:
                total += tl.sum(is_in.to(tl.int64), 0)
    elif IS_MASS:
        total = tl.sum(tl.where(orders >= least, weights, 0), 0)
    else:
        total = tl.sum((orders >= least).to(tl.int64), 0)
    return total


@triton.jit  # type: ignore[untyped-decorator]
def _of_reached(  # type: ignore[no-untyped-def]
    orders, weights, row, width, peak, heat, unit, low, high, before, goal, is_strict,
    IS_MASS: tl.constexpr, FROM_ROW: tl.constexpr,
):  # fmt: skip
    """The largest order from which on the sum reaches, or passes, the goal; the least int64 if none does."""
    found = tl.full((), _INT_MIN, tl.int64)
    while low <= high:
        middle = (low | high) - ((low ^ high) >> 1)  # of both, rounded up, without overflow
        total = _of_sum(orders, weights, row, width, peak, heat, unit, middle, IS_MASS, FROM_ROW)
        reached = (before + total).to(tl.float64)
        is_reached = (reached > goal) | ((reached == goal) & (is_strict == 0))
        found = tl.where(is_reached, middle, found)
        low, high = tl.where(is_reached, middle + 1, low), tl.where(is_reached, high, middle - 1)
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _of_cut(  # type: ignore[no-untyped-def]
    orders, weights, row, width, controls, marks, peak, heat, unit, low, high, FROM_ROW: tl.constexpr
):
    """The order from which the stages keep logits, and how many these are."""
    k, p = tl.load(controls + _TOP_K), tl.load(controls + _TOP_P)
    is_k_early, is_min_early = tl.load(controls + _IS_K_LATE) == 0, tl.load(controls + _IS_MIN_LATE) == 0
    count_before, mass_before = tl.load(marks + _COUNT_BEFORE), tl.load(marks + _MASS_BEFORE)
    of_min_p = tl.load(marks + _MIN_P_LEAST)
    of_k = tl.full((), _INT_MIN, tl.int64)
    if k > 0:
        of_k = _of_reached(
            orders, weights, row, width, peak, heat, unit, low, high, count_before, k, False, False, FROM_ROW
        )
        if tl.load(controls + _KEEP_TIES) > 0:
            of_k = (of_k >> 32) << 32
    least = tl.maximum(of_min_p, of_k)
    if p < 1:
        total = tl.load(marks + _TOTAL)
        if (k > 0) & is_k_early:
            early = tl.maximum(tl.where(is_min_early, of_min_p, _INT_MIN), of_k)
            total = _of_sum(orders, weights, row, width, peak, heat, unit, early, True, FROM_ROW)
        goal, is_strict = total.to(tl.float64) * p, tl.load(controls + _EXCLUSIVE) > 0
        of_p = _of_reached(
            orders,
            weights,
            row,
            width,
            peak,
            heat,
            unit,
            low,
            high,
            mass_before,
            goal,
            is_strict,
            True,
            FROM_ROW,
        )
        of_p = tl.where(is_strict & (of_p > _INT_MIN), of_p + 1, of_p)
        least = tl.maximum(least, of_p)
    least = tl.maximum(least, low)  # there is nothing below it
    if count_before == 0:
        least = tl.minimum(least, high)
    return least, count_before + _of_sum(
        orders, weights, row, width, peak, heat, unit, least, False, FROM_ROW
    )


@triton.jit
def _cut(logits, controls, levels, listed, marks, width, stride):  # type: ignore[no-untyped-def]
    place = tl.program_id(0).to(tl.int64)
    controls, marks, levels = controls + place * _CONTROLS, marks + place * _MARKS, levels + place * _LEVELS
    if tl.load(marks + _IS_CUT) > 0:
        heat, peak = tl.load(controls + _HEAT).to(tl.float32), tl.load(levels + _PEAK).to(tl.float32)
        unit, row = tl.load(levels + _UNIT), logits + place * stride
        if tl.load(marks + _IN_BINS) <= _CAPACITY:
            at = tl.arange(0, _CAPACITY)
            is_here = at < tl.load(marks + _COLLECTED)
            orders = tl.load(listed + place * _CAPACITY + at, mask=is_here, other=_INT_MIN)
            weights = _of_mass(_of_value((orders >> 32).to(tl.int32)), peak, heat, unit)
            weights = tl.where(is_here, weights, 0)
            high = tl.max(orders, 0)
            low = tl.min(tl.where(is_here, orders, high), 0)
            least, count = _of_cut(
                orders, weights, row, width, controls, marks, peak, heat, unit, low, high, False
            )
        else:
            best, worst = tl.full((), _INT_MIN, tl.int64), tl.full((), 0x7FFFFFFFFFFFFFFF, tl.int64)
            for start in range(0, width, _CAPACITY):
                ids = start + tl.arange(0, _CAPACITY)
                x = tl.load(row + ids, mask=ids < width, other=-_INF).to(tl.float32)
                order = _of_order(_of_cooled(x, peak, heat), ids)
                best = tl.maximum(best, tl.max(order, 0))
                worst = tl.minimum(worst, tl.min(tl.where(x > -_INF, order, 0x7FFFFFFFFFFFFFFF), 0))
            least, count = _of_cut(
                worst, best, row, width, controls, marks, peak, heat, unit, worst, best, True
            )
        tl.store(marks + _LEAST, least)
        tl.store(marks + _COUNT, count)


def collect_triton(logits: Tensor, controls: Tensor, levels: Tensor, facts: Tensor, marks: Tensor) -> Tensor:
    """As collect_torch."""
    rows, width = logits.shape
    listed = torch.empty((rows, CAPACITY), dtype=torch.int64, device=logits.device)
    blocks = facts.shape[2]
    grid = (rows, triton.cdiv(blocks, EACH))
    _collect[grid](logits, controls, levels, facts, marks, listed, width, logits.stride(0), blocks, **OPTIONS)
    return listed


def cut_triton(logits: Tensor, controls: Tensor, levels: Tensor, listed: Tensor, marks: Tensor) -> None:
    """As cut_torch, without sorting."""
    rows, width = logits.shape
    _cut[(rows,)](logits, controls, levels, listed, marks, width, logits.stride(0), **OPTIONS)
