"""Values of the host on the device, without waiting for what the device is doing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["upload"]


def upload(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """The values as torch.tensor takes them, which with a device of its own waits for all queued work."""
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)
