"""Counters of kernels on a device, which count the programs that have ended.

They are 0 before and after each launch, as the program that ends last sets them back.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["counters"]

_FEW = 4096  # counters at least: more than most steps need
_kept: dict[tuple[torch.device, int], Tensor] = {}  # by device and stream, whose launches follow each other
_outgrown: list[Tensor] = []  # recorded graphs may still count in them


def counters(size: int, device: torch.device) -> Tensor:
    """Return at least `size` counters int32 that are 0 between the launches of a stream."""
    key = device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    if key not in _kept or len(_kept[key]) < size:
        if key in _kept:
            _outgrown.append(_kept[key])
        room = 1 << max(_FEW, size - 1).bit_length()
        _kept[key] = torch.zeros(room, dtype=torch.int32, device=device)
    return _kept[key]
