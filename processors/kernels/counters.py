"""Atomic counters by which the program that finishes last in a launch finds out that it is the last.

They are 0 before and after each launch, as that program resets them.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["counters"]

_FEW = 4096  # least capacity: more than most steps need
_kept: dict[tuple[torch.device, int], Tensor] = {}  # by device and stream: launches of one are ordered


def counters(size: int, device: torch.device) -> Tensor:
    """Return at least `size` int32 counters, which are 0 between the launches of the current stream."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        # A graph gets its own counters: their zeroing is captured, so it happens at replay, not now.
        return torch.zeros(size, dtype=torch.int32, device=device)
    key = device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    found = _kept.get(key)
    if found is None or len(found) < size:
        room = max(_FEW, 1 << (size - 1).bit_length())
        found = _kept[key] = torch.zeros(room, dtype=torch.int32, device=device)
    return found
