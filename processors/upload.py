"""Asynchronous copies of host values to a device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["upload"]


def upload(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return host values as a tensor on `device`, copied asynchronously.

    torch.tensor(values, device=device) would wait for all queued work.
    """
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)
