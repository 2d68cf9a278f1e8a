"""The mass of a logit, exp(logit - the largest one), as an integer.

Sums of integers do not depend on the order in which they are added. The integers follow from int32 and int64
operations alone, so every device has the same, and no kernel needs float64, which many GPUs are slow in. The
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

MOST_BITS = 59  # of the integer that stands for the mass of a row
FARTHEST = 64.0  # so far below the largest logit there is no mass
FRACTION = 38  # bits behind the point of the exponent d * log2(e) of 2^-(d * log2(e))
LOG2_E = round(math.log2(math.e) * 2**FRACTION)
POWERS = 6  # bits of the fraction that a table has the powers for
POWER_BITS = 62  # 2^POWER_BITS stands for 1 in that table
_LEFT = FRACTION - POWERS
_STEP = math.log(2) / 2**POWERS
# 1 - exp(-_STEP t) = t (c1 - t (c2 - t (c3 - t c4))) for t from 0 to 1, with 2^37 for 1.
_SERIES_BITS = 37
SERIES = tuple(round(_STEP**n / math.factorial(n) * 2**_SERIES_BITS) for n in (1, 2, 3, 4))
TO_PRODUCT = 32 + _SERIES_BITS - 64  # from (power >> 32) * series to power * share


@lru_cache(8)
def powers(device: torch.device) -> Tensor:
    """Return 2^-(j / 64) for j from 0 to 63, and the SERIES, int64."""
    table = [round(2 ** (POWER_BITS - j / 2**POWERS)) for j in range(2**POWERS)]
    return upload([*table, *SERIES], device, torch.int64)


def masses(values: Tensor, levels: Tensor, temperature: Tensor) -> Tensor:
    """Return exp(value - the largest value) [R, N] int64 in units of 2^-UNIT, rounded down."""
    peak = levels[:, Level.PEAK, None].float().clamp(min=LOWEST)
    top = torch.where(temperature > 0, 0.0, peak)
    below = top - values
    # What the difference was rounded by (Knuth).
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
