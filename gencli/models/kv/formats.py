"""Number formats of the KV cache."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["as_stored"]

_MAX_FLOAT16 = torch.finfo(torch.float16).max


def as_stored(held: Tensor, dtype: torch.dtype) -> Tensor:
    """Return keys and values in the format of the KV cache; those beyond its range become its largest."""
    if held.dtype == dtype:
        return held
    if dtype == torch.float16:
        held = held.clamp(-_MAX_FLOAT16, _MAX_FLOAT16)
    return held.to(dtype)
