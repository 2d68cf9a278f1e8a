"""The threshold of a row by min-p, top-k and top-p, found by binary search over orders.

Inlined into the kernel of listed_triton.py, in which one program does this for one row. Each step of the
search sums the counts or masses of the orders above the middle, from the candidate list, or from the row
itself (FROM_ROW) if a list cannot hold the candidates. Sums are integers, so the threshold is the twin's.
"""

from __future__ import annotations

import triton
import triton.language as tl

from processors.kernels.choice.masses_triton import _of_mass
from processors.kernels.choice.parts_triton import _of_cooled, _of_goal, _of_logits, _of_order, _of_value
from processors.kernels.choice.tables import CAPACITY, Control, Mark

__all__ = ["CHUNK", "OPTIONS"]

CHUNK = 256  # orders per iteration: with top-k most candidate lists are no longer
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF, _INT_MIN, _INT_MAX = tl.constexpr(float("inf")), tl.constexpr(-(2**63)), tl.constexpr(2**63 - 1)
_CHUNK, _CAPACITY = tl.constexpr(CHUNK), tl.constexpr(CAPACITY)
_TOP_K, _KEEP_TIES, _TOP_P, _EXCLUSIVE, _IS_K_LATE, _IS_MIN_LATE = (
    tl.constexpr(int(Control[name]))
    for name in ("TOP_K", "KEEP_TIES", "TOP_P", "EXCLUSIVE", "IS_K_LATE", "IS_MIN_LATE")
)
_MIN_P_LEAST, _TOTAL, _COUNT_BEFORE, _MASS_BEFORE = (
    tl.constexpr(int(Mark[name])) for name in ("MIN_P_LEAST", "TOTAL", "COUNT_BEFORE", "MASS_BEFORE")
)


@triton.jit  # type: ignore[untyped-decorator]
def _of_chunk(  # type: ignore[no-untyped-def]
    listed,
    row,
    patch,
    start,
    number,
    peak,
    heat,
    unit,
    powers,
    IS_MASS: tl.constexpr,
    FROM_ROW: tl.constexpr,
    HAS_PATCH: tl.constexpr,
):
    """Load CHUNK orders from `start` on (the least int64 past the end) and their masses, or ones."""
    place = start + tl.arange(0, _CHUNK)
    weights = tl.full((_CHUNK,), 1, tl.int64)
    if FROM_ROW:
        x = _of_logits(row, patch, place, place < number, number, HAS_PATCH)
        value = _of_cooled(x, peak, heat)
        orders = tl.where(x > -_INF, _of_order(value, place), _INT_MIN)
        if IS_MASS:
            weights = _of_mass(value, peak, heat, unit, powers)
    else:
        orders = tl.load(listed + place, mask=place < number, other=_INT_MIN)
        if IS_MASS:
            weights = tl.load(listed + _CAPACITY + place, mask=place < number, other=0)
    return orders, weights


@triton.jit  # type: ignore[untyped-decorator]
def _of_sum(  # type: ignore[no-untyped-def]
    listed,
    row,
    patch,
    number,
    peak,
    heat,
    unit,
    powers,
    least,
    IS_MASS: tl.constexpr,
    FROM_ROW: tl.constexpr,
    HAS_PATCH: tl.constexpr,
):
    """Sum of masses, or count, of orders >= least; the least of these and the largest below, per lane."""
    total = tl.zeros((_CHUNK,), tl.int64)
    first, last = tl.full((_CHUNK,), _INT_MAX, tl.int64), tl.full((_CHUNK,), _INT_MIN, tl.int64)
    for start in range(0, number, _CHUNK):
        orders, weights = _of_chunk(
            listed, row, patch, start, number, peak, heat, unit, powers, IS_MASS, FROM_ROW, HAS_PATCH
        )  # fmt: skip
        is_in = (orders >= least) & (orders > _INT_MIN)
        total += tl.where(is_in, weights, 0)
        first = tl.minimum(first, tl.where(is_in, orders, _INT_MAX))
        last = tl.maximum(last, tl.where(is_in, _INT_MIN, orders))
    return tl.sum(total, 0), first, last


@triton.jit  # type: ignore[untyped-decorator]
def _of_reached(  # type: ignore[no-untyped-def]
    listed, row, patch, number, peak, heat, unit, powers, low, high, before, goal,
    IS_MASS: tl.constexpr, FROM_ROW: tl.constexpr, HAS_PATCH: tl.constexpr,
):  # fmt: skip
    """Largest order o with before + sum over orders >= o at least `goal`; the least int64 if none."""
    found = tl.full((), _INT_MIN, tl.int64)
    while low <= high:
        middle = (low | high) - ((low ^ high) >> 1)  # mean, rounded up, without overflow
        total, first, last = _of_sum(
            listed, row, patch, number, peak, heat, unit, powers, middle, IS_MASS, FROM_ROW, HAS_PATCH
        )  # fmt: skip
        if before + total >= goal:  # bounds move to existing orders, so each iteration excludes at least one
            found = tl.min(first, 0)
            low = found + 1
        else:
            high = tl.max(last, 0)
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _of_cut(  # type: ignore[no-untyped-def]
    listed,
    row,
    patch,
    number,
    controls,
    marks,
    peak,
    heat,
    unit,
    powers,
    FROM_ROW: tl.constexpr,
    HAS_PATCH: tl.constexpr,
):
    """Least order that the stages keep, and the number of kept logits."""
    k, p = tl.load(controls + _TOP_K), tl.load(controls + _TOP_P)
    is_k_early, is_min_early = tl.load(controls + _IS_K_LATE) == 0, tl.load(controls + _IS_MIN_LATE) == 0
    count_before, mass_before = tl.load(marks + _COUNT_BEFORE), tl.load(marks + _MASS_BEFORE)
    of_min_p = tl.load(marks + _MIN_P_LEAST)
    if (FROM_ROW == 0) & (p < 1):
        for start in range(0, number, _CHUNK):
            place = start + tl.arange(0, _CHUNK)
            orders = tl.load(listed + place, mask=place < number, other=0)
            weights = _of_mass(_of_value((orders >> 32).to(tl.int32)), peak, heat, unit, powers)
            tl.store(listed + _CAPACITY + place, weights, mask=place < number)
        tl.debug_barrier()
    total, first, last = _of_sum(
        listed, row, patch, number, peak, heat, unit, powers, _INT_MIN, False, FROM_ROW, HAS_PATCH
    )  # fmt: skip
    low = tl.min(first, 0)
    total, first, last = _of_sum(
        listed, row, patch, number, peak, heat, unit, powers, _INT_MAX, False, FROM_ROW, HAS_PATCH
    )  # fmt: skip
    high = tl.max(last, 0)
    of_k = tl.full((), _INT_MIN, tl.int64)
    if k > 0:
        of_k = _of_reached(
            listed, row, patch, number, peak, heat, unit, powers, low, high, count_before, k.to(tl.int64),
            False, FROM_ROW, HAS_PATCH,
        )  # fmt: skip
        if tl.load(controls + _KEEP_TIES) > 0:
            of_k = (of_k >> 32) << 32
    least = tl.maximum(of_min_p, of_k)
    if p < 1:
        total = tl.load(marks + _TOTAL)
        if (k > 0) & is_k_early:
            early = tl.maximum(tl.where(is_min_early, of_min_p, _INT_MIN), of_k)
            total, first, last = _of_sum(
                listed, row, patch, number, peak, heat, unit, powers, early, True, FROM_ROW, HAS_PATCH
            )  # fmt: skip
        is_exclusive = tl.load(controls + _EXCLUSIVE) > 0
        of_p = _of_reached(
            listed, row, patch, number, peak, heat, unit, powers, low, high, mass_before,
            _of_goal(total, p, is_exclusive), True, FROM_ROW, HAS_PATCH,
        )  # fmt: skip
        of_p = tl.where(is_exclusive & (of_p > _INT_MIN), of_p + 1, of_p)
        least = tl.maximum(least, of_p)
    least = tl.maximum(least, low)  # the least order of all
    if count_before == 0:
        least = tl.minimum(least, high)
    count, first, last = _of_sum(
        listed, row, patch, number, peak, heat, unit, powers, least, False, FROM_ROW, HAS_PATCH
    )  # fmt: skip
    return least, count_before + count
