"""Functions inlined by the Triton kernels of this folder; twins of those in parts.py, rng.py and patches.py.

They must return the bits of their twins: sort keys, bins and uniform numbers decide which token is chosen.
So division is rounded to nearest (`div_rn`), FP fusion is off, and random bits are int64 arithmetic alone.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.tables import NUM_BINS
from processors.rng import GAMMA, signed
from processors.stages.shared import LOWEST

__all__ = ["OPTIONS", "patch_arguments"]

OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}

_INF, _INT_MIN = tl.constexpr(float("inf")), tl.constexpr(-(2**63))
_LOWEST = tl.constexpr(LOWEST)
_NUM_BINS = tl.constexpr(NUM_BINS)
_GAMMA = tl.constexpr(signed(GAMMA))


@triton.jit
def _of_ones(words):  # type: ignore[no-untyped-def]
    """Population count of int32 words."""
    left = words.to(tl.uint32, bitcast=True)
    left = left - ((left >> 1) & 0x55555555)
    left = (left & 0x33333333) + ((left >> 2) & 0x33333333)
    left = (left + (left >> 4)) & 0x0F0F0F0F
    return ((left * 0x01010101) >> 24).to(tl.int32)


@triton.jit  # type: ignore[untyped-decorator]
def _of_logits(row, patch, ids, is_here, width, HAS_PATCH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load float32 logits of `row` at ids with its patch applied; -inf where not `is_here`."""
    x = tl.load(row + ids, mask=is_here, other=-_INF).to(tl.float32)
    if HAS_PATCH:
        words = (width + 31) // 32
        at, bit = patch + ids // 32, (ids % 32).to(tl.int32)
        if tl.load(patch + 3 * words) > 0:  # the row has edited ids
            edited = tl.load(at + words, mask=is_here, other=0)
            is_edited = ((edited >> bit) & 1) > 0
            before = tl.load(at + 2 * words, mask=is_edited, other=0) + _of_ones(edited & ((1 << bit) - 1))
            new = tl.load(patch + 3 * words + 1 + before, mask=is_edited, other=0)
            x = tl.where(is_edited, new.to(tl.float32, bitcast=True), x)
        is_allowed = ((tl.load(at, mask=is_here, other=0) >> bit) & 1) > 0
        x = tl.where((x < _INF) & (is_allowed == 0), -_INF, x)
    return x


@triton.jit
def _of_cooled(logits, peak, heat):  # type: ignore[no-untyped-def]
    """(logits - peak) / heat, at least LOWEST for finite logits; the logits if heat is 0."""
    values = logits
    if heat > 0:
        lowered = tl.maximum(tl.math.div_rn(logits - peak, heat), _LOWEST)
        values = tl.where(logits > -_INF, lowered, logits)
    return values


@triton.jit
def _of_cooled_soon(logits, peak, heat, rate):  # type: ignore[no-untyped-def]
    """As _of_cooled to the last bit: times rate = 1 / heat with two corrections (Markstein); 0: divides."""
    if rate > 0:
        below = logits - peak
        near = below * rate
        near = tl.fma(tl.fma(near, -heat, below), rate, near)
        near = tl.fma(tl.fma(near, -heat, below), rate, near)
        values = tl.where(logits > -_INF, tl.maximum(near, _LOWEST), logits)
    else:
        values = _of_cooled(logits, peak, heat)
    return values


@triton.jit
def _of_key(values):  # type: ignore[no-untyped-def]
    """int32 keys that sort as the values do; -0 has the key of 0."""
    bits = tl.where(values == 0, 0.0, values).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _of_order(values, ids):  # type: ignore[no-untyped-def]
    """Orders (sort keys of value and id) of values at ids, int64."""
    return (_of_key(values).to(tl.int64) << 32) | (0x7FFFFFFF - ids.to(tl.int64))


@triton.jit
def _of_mix(value):  # type: ignore[no-untyped-def]
    """SplitMix64's finaliser, as processors.rng.mix."""
    value = (value ^ ((value >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    value = (value ^ ((value >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return value ^ ((value >> 31) & 0x1FFFFFFFF)


@triton.jit
def _of_row_key(seed, position, stream):  # type: ignore[no-untyped-def]
    """As processors.rng.row_keys; `stream` is the stream times GAMMA."""
    return _of_mix(_of_mix(seed + position * _GAMMA) + stream)


@triton.jit
def _of_uniform(bits):  # type: ignore[no-untyped-def]
    """Uniform number in (0, 1) from 64 random bits, float64."""
    return (((bits >> 12) & 0xFFFFFFFFFFFFF).to(tl.float64) + 0.5) * 2.220446049250313e-16


@triton.jit
def _of_gumbel(key, ids):  # type: ignore[no-untyped-def]
    """Gumbel noise of ids, float64: -log(-log(u))."""
    return -tl.log(-tl.log(_of_uniform(_of_mix(key + ids.to(tl.int64) * _GAMMA))))


@triton.jit
def _of_value(key):  # type: ignore[no-untyped-def]
    """The float32 of an int32 key, the inverse of _of_key."""
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def _of_floor(order):  # type: ignore[no-untyped-def]
    """Least finite value whose order is at least `order`, which is of `first_order` or the least int64."""
    value = _of_value((order >> 32).to(tl.int32))
    return tl.where(order == _INT_MIN, _LOWEST, tl.maximum(value, _LOWEST))


@triton.jit
def _of_top(peak, heat):  # type: ignore[no-untyped-def]
    """Maximum of the row after temperature: 0 with one, else the peak."""
    return tl.where(heat > 0, 0.0, tl.maximum(peak, _LOWEST))


@triton.jit
def _of_bin(values, peak, heat, per_unit):  # type: ignore[no-untyped-def]
    """Histogram bins of values, int32; as bin_of."""
    places = (_of_top(peak, heat) - values) * per_unit.to(tl.float32)
    return tl.maximum(tl.minimum(places, _NUM_BINS - 1.0), 0.0).to(tl.int32)


@triton.jit
def _of_goal(total, p, is_exclusive):  # type: ignore[no-untyped-def]
    """Least mass that reaches p * total, or exceeds it if exclusive; as goal_of."""
    goal = total.to(tl.float64) * p
    return tl.where(is_exclusive, tl.floor(goal).to(tl.int64) + 1, tl.ceil(goal).to(tl.int64))


def patch_arguments(logits: Tensor, patches: Tensor | None) -> dict[str, Any]:
    """Return the keyword arguments for patches; without patches the pointer is that of the logits."""
    if patches is None:
        return {"patches": logits, "size": 0, "HAS_PATCH": False}
    return {"patches": patches, "size": patches.shape[1], "HAS_PATCH": True}
