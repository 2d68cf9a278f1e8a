"""Fixed-point probability masses, inlined by kernels; twin of masses.py with equal bits.

It takes the upper words of 32-bit products where the twin shifts 64-bit products: the same integers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from processors.kernels.choice.parts_triton import _of_top
from processors.kernels.choice.tables import FARTHEST, FRACTION, LOG2_E, POWER_BITS, POWERS, TO_PRODUCT

__all__ = ["OPTIONS"]

OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}

_FARTHEST, _LOG2_E = tl.constexpr(FARTHEST), tl.constexpr(LOG2_E)
_FRACTION, _LEFT, _LAST = tl.constexpr(FRACTION), tl.constexpr(FRACTION - POWERS), tl.constexpr(2**POWERS - 1)
_POWER_BITS, _TO_PRODUCT = tl.constexpr(POWER_BITS), tl.constexpr(TO_PRODUCT)


@triton.jit
def _of_error(values, top, below, is_near):  # type: ignore[no-untyped-def]
    """Rounding error of the difference top - values (Knuth's TwoSum), in units of the exponent."""
    shift = below - top
    error = (top - (below - shift)) - (values + shift)
    return (tl.where(is_near, error, 0.0) * (_LOG2_E * 1.0)).to(tl.int64)


@triton.jit
def _of_mass(values, peak, heat, unit, powers):  # type: ignore[no-untyped-def]
    """exp(value - maximum) as int64 in units of 2^-unit; `powers` points to the table of masses.powers."""
    top = _of_top(peak, heat)
    below = top - values
    is_near = below < _FARTHEST
    bits = tl.where(is_near, below, _FARTHEST).to(tl.int32, bitcast=True)
    product = ((bits & 0x7FFFFF) | 0x800000).to(tl.int64) * _LOG2_E
    exponent = product >> tl.minimum(150 - (bits >> 23), 63).to(tl.int64)
    if heat <= 0:  # with a temperature the difference is exact
        exponent += _of_error(values, top, below, is_near)
    t, high = exponent.to(tl.int32), (exponent >> _LEFT).to(tl.int32)
    # Terms are loaded, not constants: LLVM widens sums of known range to 64 bits.
    terms = powers + _LAST + 1
    first, second = tl.load(terms).to(tl.int32), tl.load(terms + 1).to(tl.int32)
    third, fourth = tl.load(terms + 2).to(tl.int32), tl.load(terms + 3).to(tl.int32)
    series = second - tl.umulhi(t, third - tl.umulhi(t, tl.zeros_like(t) + fourth))
    share = tl.umulhi(t, first - tl.umulhi(t, series))
    power = tl.load(powers + (high & _LAST))
    found = power - (((power >> 32).to(tl.int32).to(tl.int64) * share.to(tl.int64)) >> _TO_PRODUCT)
    return found >> tl.minimum((high >> (_FRACTION - _LEFT)) + (_POWER_BITS - unit), 63).to(tl.int64)
