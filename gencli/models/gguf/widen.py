"""Stored rows of a GGUF tensor as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gencli.models.gguf.kinds import Kind

__all__ = ["Rows", "widened"]

Rows = np.ndarray[Any, np.dtype[np.uint8]]  # [rows, bytes of a row]
_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def widened(rows: Rows, kind: Kind) -> Tensor:
    """Return stored rows [rows, bytes] as numbers [rows, values]: plain ones as they are, else float32."""
    if kind.name in _PLAIN:
        return torch.from_numpy(np.ascontiguousarray(rows)).view(_PLAIN[kind.name])
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    return torch.from_numpy(dequantize(rows, GGMLQuantizationType[kind.name]))
