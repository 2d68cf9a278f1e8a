"""Functions shared by the Triton kernels of a choice, most of them twins of those in parts.py and rng.py."""

from __future__ import annotations

import triton
import triton.language as tl

from processors.kernels.choice.parts import NUM_BINS
from processors.rng import GAMMA, signed
from processors.stages.tokens import LOWEST

__all__ = ["OPTIONS"]

OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}

_INF, _INT_MIN = tl.constexpr(float("inf")), tl.constexpr(-(2**63))
_LOWEST = tl.constexpr(LOWEST)
_NUM_BINS = tl.constexpr(NUM_BINS)
_GAMMA = tl.constexpr(signed(GAMMA))


@triton.jit
def _of_cooled(logits, peak, heat):  # type: ignore[no-untyped-def]
    """(logits - peak) / heat, finite for finite logits; the logits where heat is 0."""
    values = logits
    if heat > 0:
        lowered = tl.maximum(tl.math.div_rn(logits - peak, heat), _LOWEST)
        values = tl.where(logits > -_INF, lowered, logits)
    return values


@triton.jit
def _of_cooled_soon(logits, peak, heat, rate):  # type: ignore[no-untyped-def]
    """As _of_cooled, by a rounded 1 / heat where it rounds as a division does (Markstein); 0: none."""
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
    """Integers, int32, in the order of the values; -0 is 0."""
    bits = tl.where(values == 0, 0.0, values).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _of_order(values, ids):  # type: ignore[no-untyped-def]
    """The order of values at ids, int64."""
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
    """A number between 0 and 1 from 64 random bits, float64."""
    return (((bits >> 12) & 0xFFFFFFFFFFFFF).to(tl.float64) + 0.5) * 2.220446049250313e-16


@triton.jit
def _of_gumbel(key, ids):  # type: ignore[no-untyped-def]
    """Gumbel noise of ids, float64."""
    return -tl.log(-tl.log(_of_uniform(_of_mix(key + ids.to(tl.int64) * _GAMMA))))


@triton.jit
def _of_value(key):  # type: ignore[no-untyped-def]
    """The float32 with this key, int32."""
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def _of_floor(order):  # type: ignore[no-untyped-def]
    """The least value from an order of `first_order` on, that of all finite ones for the least int64."""
    value = _of_value((order >> 32).to(tl.int32))
    return tl.where(order == _INT_MIN, _LOWEST, tl.maximum(value, _LOWEST))


@triton.jit
def _of_top(peak, heat):  # type: ignore[no-untyped-def]
    """The largest cooled logit."""
    return tl.where(heat > 0, 0.0, tl.maximum(peak, _LOWEST))


@triton.jit
def _of_bin(values, peak, heat, per_unit):  # type: ignore[no-untyped-def]
    """The bins of values, int32."""
    places = (_of_top(peak, heat) - values) * per_unit.to(tl.float32)
    return tl.maximum(tl.minimum(places, _NUM_BINS - 1.0), 0.0).to(tl.int32)


@triton.jit
def _of_goal(total, p, is_exclusive):  # type: ignore[no-untyped-def]
    """The least mass that reaches the share p of a total, or exceeds it."""
    goal = total.to(tl.float64) * p
    return tl.where(is_exclusive, tl.floor(goal).to(tl.int64) + 1, tl.ceil(goal).to(tl.int64))
