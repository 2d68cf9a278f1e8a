"""Counters of kernels on a device, which count the programs that have ended.

They are 0 before and after each launch, as the program that ends last sets them back.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["counters"]

_FEW = 4096  # counters at least: more than most steps need
_kept: dict[tuple[torch.device, int], Tensor] = {}  # by device and stream, whose launches follow each other


def counters(size: int, device: torch.device) -> Tensor:
    """Return at least `size` counters int32 that are 0 between the launches of a stream."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        # A graph gets its own, which it zeroes: what is made here is filled by a replay, not now.
        return torch.zeros(size, dtype=torch.int32, device=device)
    key = device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    found = _kept.get(key)
    if found is None or len(found) < size:
        room = max(_FEW, 1 << (size - 1).bit_length())
        found = _kept[key] = torch.zeros(room, dtype=torch.int32, device=device)
    return found
