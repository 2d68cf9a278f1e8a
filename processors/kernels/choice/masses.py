"""Fixed-point probability masses: exp(logit - maximum) as an int64.

Integer sums do not depend on the order in which they are added. The integers follow from int32 and int64
operations alone, so every device computes the same bits, and no kernel needs float64, which is slow on many
GPUs. exp(-d) = 2^-i * 2^-(j/64) * series(t): integer part, table lookup and polynomial of d * log2(e). The
relative error is at most 2^-34.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from processors.kernels.choice.parts import Level
from processors.stages.tokens import LOWEST
from processors.upload import upload

__all__ = [
    "FARTHEST",
    "FRACTION",
    "LOG2_E",
    "MOST_BITS",
    "POWERS",
    "POWER_BITS",
    "SERIES",
    "TO_PRODUCT",
    "masses",
    "powers",
]

MOST_BITS = 59  # bits of the integer sum over a row
FARTHEST = 64.0  # distance below the maximum from which a mass is 0
FRACTION = 38  # fractional bits of the fixed-point exponent d * log2(e)
LOG2_E = round(math.log2(math.e) * 2**FRACTION)
POWERS = 6  # leading bits of the fraction, which index the table of powers
POWER_BITS = 62  # the table has 1 as 2^POWER_BITS
_LEFT = FRACTION - POWERS
_STEP = math.log(2) / 2**POWERS
# 1 - exp(-_STEP t) = t (c1 - t (c2 - t (c3 - t c4))) for t from 0 to 1, in units of 2^-37.
_SERIES_BITS = 37
SERIES = tuple(round(_STEP**n / math.factorial(n) * 2**_SERIES_BITS) for n in (1, 2, 3, 4))
TO_PRODUCT = 32 + _SERIES_BITS - 64  # from (power >> 32) * series to power * share


@lru_cache(8)
def powers(device: torch.device) -> Tensor:
    """Return 2^-(j / 64) for j from 0 to 63 in units of 2^-POWER_BITS, then the SERIES, int64 [68]."""
    table = [round(2 ** (POWER_BITS - j / 2**POWERS)) for j in range(2**POWERS)]
    return upload([*table, *SERIES], device, torch.int64)


def masses(values: Tensor, levels: Tensor, temperature: Tensor) -> Tensor:
    """Return exp(value - maximum of the row) [R, N] int64 in units of 2^-UNIT, rounded down."""
    peak = levels[:, Level.PEAK, None].float().clamp(min=LOWEST)
    top = torch.where(temperature > 0, 0.0, peak)
    below = top - values
    # Rounding error of the difference (Knuth's TwoSum).
    shift = below - top
    error = (top - (below - shift)) - (values + shift)
    is_near = below < FARTHEST
    below = torch.where(is_near, below, FARTHEST).contiguous()
    error = torch.where(is_near & (temperature <= 0), error, 0.0)
    bits = below.view(torch.int32).long()
    product = ((bits & 0x7FFFFF) | 0x800000) * LOG2_E
    exponent = product >> (150 - (bits >> 23)).clamp(max=63)
    exponent += (error * float(LOG2_E)).long()
    t, series = exponent & (2**_LEFT - 1), torch.full_like(exponent, SERIES[3])
    for term in reversed(SERIES[:3]):
        series = term - (t * series >> 32)
    power = powers(values.device)[exponent >> _LEFT & (2**POWERS - 1)]
    found = power - ((power >> 32) * (t * series >> 32) >> TO_PRODUCT)
    unit = levels[:, Level.UNIT, None].long()
    result: Tensor = found >> ((exponent >> FRACTION) + POWER_BITS - unit).clamp(max=63)
    return result
