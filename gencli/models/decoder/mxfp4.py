"""MXFP4: numbers of four bits with a scale for each 32 of them (OCP Microscaling Formats, 1.0).

A code is a sign, two bits of exponent and one of fraction (e2m1). A scale is a power of two (e8m0).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["widened_mxfp4"]

_POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_VALUES = torch.tensor([*_POSITIVE, *(-value for value in _POSITIVE)])
_BIAS = 127  # the scale whose factor is 1


def widened_mxfp4(blocks: Tensor, scales: Tensor) -> Tensor:
    """Return the numbers [out, in] in float32: value(code) * 2^(scale - 127).

    `blocks` [out, in / 32, 16] uint8 have two codes a byte, the lower bits first, and `scales` [out, in / 32]
    uint8 are those of 32 numbers.
    """
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(2)
    return torch.ldexp(_VALUES[codes.int()], scales.int()[..., None] - _BIAS).flatten(1)
