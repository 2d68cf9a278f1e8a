"""Pad the logits of one model to the width of another."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["as_wide"]


def as_wide(logits: Tensor, width: int, device: torch.device) -> Tensor:
    """Return logits [R, W] as [R, width] on `device`, cut or padded with minus infinity."""
    logits = logits[:, :width].to(device)
    missing = width - logits.shape[1]
    return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf) if missing else logits
