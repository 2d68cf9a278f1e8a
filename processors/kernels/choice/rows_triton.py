"""Levels, marks and token of a row, computed by one program from the facts of its blocks.

Inlined into the kernel of facts_triton.py; twin of rows.py. Exact thresholds (min-p) are rounded as in the
twin; bounds may differ in their last bits, as they only decide how many candidates are read.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.choose_rows import REACH, TAME, VAST
from processors.kernels.choice.parts_triton import _of_cooled, _of_key, _of_logits, _of_value
from processors.kernels.choice.tables import MOST_BITS, NUM_BINS, OPEN, Control, Fact, Level, Mark
from processors.sampler import BLOCK, EMPTY, NON_FINITE
from processors.stages.shared import LOWEST

__all__ = ["OPTIONS", "row_tables"]

OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF = tl.constexpr(float("inf"))
_LOWEST = tl.constexpr(LOWEST)
_INT_MIN = tl.constexpr(-(2**63))
_REACH, _TAME, _VAST = tl.constexpr(REACH), tl.constexpr(TAME), tl.constexpr(VAST)
_EMPTY, _NON_FINITE, _OPEN = tl.constexpr(EMPTY), tl.constexpr(NON_FINITE), tl.constexpr(OPEN)
_BLOCK, _MOST_BITS = tl.constexpr(BLOCK), tl.constexpr(MOST_BITS)
_KEY_OF_NONE = tl.constexpr(-0x7F800001)  # key of -inf
_NUM_BINS = tl.constexpr(NUM_BINS)
_CONTROLS, _LEVELS, _MARKS = tl.constexpr(len(Control)), tl.constexpr(len(Level)), tl.constexpr(len(Mark))
_GREEDY, _HEAT = tl.constexpr(int(Control.GREEDY)), tl.constexpr(int(Control.HEAT_CUT))
_MIN_P, _TOP_K, _TOP_P = (tl.constexpr(int(Control[name])) for name in ("MIN_P", "TOP_K", "TOP_P"))
_IS_K_LATE, _IS_MIN_LATE = tl.constexpr(int(Control.IS_K_LATE)), tl.constexpr(int(Control.IS_MIN_LATE))
_PEAK, _PER_UNIT, _UNIT, _RATE = (tl.constexpr(int(one)) for one in Level)
_FAULT, _LEAST, _COUNT, _IS_CUT = (
    tl.constexpr(int(Mark[name])) for name in ("FAULT", "LEAST", "COUNT", "IS_CUT")
)
_FROM, _MIN_P_LEAST = tl.constexpr(int(Mark.FROM)), tl.constexpr(int(Mark.MIN_P_LEAST))
_LOW, _SUM, _FINITE = (tl.constexpr(int(Fact[name])) for name in ("LOW", "SUM", "FINITE"))


@triton.jit
def _of_largest(values, k):  # type: ignore[no-untyped-def]
    """The k-th largest of values, its key rounded down to 16 bits, by binary search over the keys."""
    keys = _of_key(values) >> 16
    low, high = tl.min(keys, 0), tl.max(keys, 0)
    while low < high:
        middle = (low + high + 1) >> 1
        is_reached = tl.sum((keys >= middle).to(tl.int32), 0) >= k
        low, high = tl.where(is_reached, middle, low), tl.where(is_reached, high, middle - 1)
    return _of_value(tl.maximum(low << 16, _KEY_OF_NONE))


@triton.jit
def _of_first_order(value):  # type: ignore[no-untyped-def]
    return _of_key(value).to(tl.int64) << 32


@triton.jit
def _of_bounds(tops, lows, sums, peak, count, num_blocks, fault, mine, levels, marks):  # type: ignore[no-untyped-def]
    """Store the least order of candidates, the scale of the histogram and the unit of masses of a row."""
    heat = tl.load(mine + _HEAT).to(tl.float32)
    min_p, k, p = tl.load(mine + _MIN_P), tl.load(mine + _TOP_K), tl.load(mine + _TOP_P)
    peak = tl.maximum(peak, _LOWEST)
    top = tl.where(heat > 0, 0.0, peak)
    tops = _of_cooled(tops, peak, heat)
    mass = tl.sum(tl.exp(tops - top) * sums, 0)
    is_k_first = (k > 0) & (tl.load(mine + _IS_K_LATE) == 0)
    is_min_first = (min_p > 0) & (tl.load(mine + _IS_MIN_LATE) == 0)
    is_mass_listed = is_k_first & (p < 1)
    exact = top.to(tl.float64) + tl.log(tl.where(min_p > 0, min_p, 1.0))
    near = exact.to(tl.float32)
    least = _of_value(_of_key(near) + (near.to(tl.float64) < exact).to(tl.int32))
    begin = tl.where((min_p > 0) & (is_min_first | (is_mass_listed == 0)), least, -_INF)
    if (k > 0) & (k <= num_blocks):
        begin = tl.maximum(begin, _of_largest(tops, k))
    known = tl.where(is_k_first | is_min_first, 1.0, mass.to(tl.float64) * 0.999)
    share = (1.0 - p) * 0.5 * known / tl.maximum(count, 1).to(tl.float64)
    is_bounded = (p < 1) & (is_mass_listed == 0)
    from_p = (top.to(tl.float64) + tl.log(tl.where(is_bounded, share, 1.0))).to(tl.float32)
    begin = tl.where(is_bounded, tl.maximum(begin, from_p), begin)
    is_cut = ((min_p > 0) | (k > 0) | (p < 1)) & (tl.load(mine + _GREEDY) == 0) & (fault == 0)
    tl.store(marks + _IS_CUT, is_cut.to(tl.int64))
    tl.store(marks + _FROM, tl.where(is_cut, _of_first_order(begin), _INT_MIN))
    tl.store(marks + _MIN_P_LEAST, tl.where(min_p > 0, _of_first_order(least), _INT_MIN))
    lowest = tl.min(lows, 0)
    # Within these bounds no intermediate of _of_cooled_soon overflows or is denormal.
    is_tame = (tl.abs(peak) >= _TAME) & (tl.abs(peak) <= _VAST) & (lowest >= -_VAST)
    is_tame = is_tame & (heat >= _TAME) & (heat <= 1 / _TAME)
    rate = tl.where(is_tame, tl.math.div_rn(1.0, tl.where(heat > 0, heat, 1.0)), 0.0)
    tl.store(levels + _RATE, rate.to(tl.float64))
    low = _of_cooled(lowest, peak, heat)
    reach = tl.maximum(tl.minimum(top - tl.maximum(begin, low), _REACH), 1e-30)
    tl.store(levels + _PER_UNIT, tl.math.div_rn(_NUM_BINS * 1.0, reach).to(tl.float64))
    exponent = (mass.to(tl.int32, bitcast=True) >> 23) - 126
    tl.store(levels + _UNIT, (-exponent + _MOST_BITS).to(tl.float64))


@triton.jit  # type: ignore[untyped-decorator]
def _of_first(  # type: ignore[no-untyped-def]
    row, patch, tops, block, width, peak, BLOCKS: tl.constexpr, HAS_PATCH: tl.constexpr
):
    """The lowest id with the maximum logit of `row`."""
    ids = tl.min(tl.where(tops == peak, block, BLOCKS), 0) * _BLOCK + tl.arange(0, _BLOCK)
    x = _of_logits(row, patch, ids, ids < width, width, HAS_PATCH)
    return tl.min(tl.where(x == peak, ids, 0x7FFFFFFF), 0).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]
def _of_row(  # type: ignore[no-untyped-def]
    row, logits, patch, facts, controls, levels, marks, tokens, width, num_blocks,
    BLOCKS: tl.constexpr, CUTS: tl.constexpr, HAS_PATCH: tl.constexpr,
):  # fmt: skip
    """Store levels, marks and token of the row; `logits` and `patch` point to its own."""
    block = tl.arange(0, BLOCKS)
    is_inside = block < num_blocks
    mine = facts + row * 4 * num_blocks + block
    tops = tl.load(mine, mask=is_inside, other=-_INF)
    is_nan = tl.max((tops != tops).to(tl.int32), 0) > 0
    peak = tl.where(is_nan, float("nan"), tl.max(tops, 0))
    count = tl.sum(tl.load(mine + _FINITE * num_blocks, mask=is_inside, other=0.0).to(tl.int32), 0)
    levels, marks, controls = levels + row * _LEVELS, marks + row * _MARKS, controls + row * _CONTROLS
    place = tl.arange(0, 16)
    tl.store(marks + place, tl.zeros((16,), tl.int64), mask=place < _MARKS)
    tl.debug_barrier()
    tl.store(levels + _PEAK, peak.to(tl.float64))
    fault = tl.where(peak == -_INF, _EMPTY, tl.where(peak < _INF, 0, _NON_FINITE))
    tl.store(marks + _FAULT, fault.to(tl.int64))
    tl.store(marks + _LEAST, _INT_MIN)
    tl.store(marks + _COUNT, count.to(tl.int64))
    token = tl.where(fault == 0, _OPEN, fault).to(tl.int64)
    if (fault == 0) & (tl.load(controls + _GREEDY) > 0):
        token = _of_first(logits, patch, tops, block, width, peak, BLOCKS, HAS_PATCH)
    tl.store(tokens + row, token)
    if CUTS:
        lows = tl.load(mine + _LOW * num_blocks, mask=is_inside, other=_INF)
        sums = tl.load(mine + _SUM * num_blocks, mask=is_inside, other=0.0)
        _of_bounds(tops, lows, sums, peak, count, num_blocks, fault, controls, levels, marks)
    else:
        tl.store(marks + _FROM, _INT_MIN)


def row_tables(rows: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return uninitialised levels [R, L], marks [R, M] and tokens [R]."""
    levels = torch.empty((rows, len(Level)), dtype=torch.float64, device=device)
    marks = torch.empty((rows, len(Mark)), dtype=torch.int64, device=device)
    return levels, marks, torch.empty(rows, dtype=torch.int64, device=device)
