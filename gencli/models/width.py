"""Logits of one model as wide as those of another."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["as_wide"]


def as_wide(logits: Tensor, width: int, device: torch.device) -> Tensor:
    """Logits [R, W] as [R, width] on the device; ids beyond W are padding, and minus infinity."""
    logits = logits[:, :width].to(device)
    missing = width - logits.shape[1]
    return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf) if missing else logits
