"""Numbers that several stages share."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["HIGHEST", "LOWEST", "edit"]

HIGHEST = torch.finfo(torch.float32).max
LOWEST = torch.finfo(torch.float32).min


def edit(logits: Tensor, ids: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """Write float64 values [A, N] back at these ids [A, N] of the logits [A, V].

    What was infinite stays as it was, so masked stays masked; what is finite stops at the float32 limits.
    """
    new = torch.where(old.isinf(), old, new.clamp(LOWEST, HIGHEST))
    return logits.scatter_(1, ids, new.float())
