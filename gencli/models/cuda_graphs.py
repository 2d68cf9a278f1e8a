"""Whether the decode steps of a model are recorded as CUDA graphs."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch

from gencli.errors import ModelError
from processors.graphs import CudaRecorder, Graphs

__all__ = ["CudaGraphs", "elsewhere", "make_graphs", "refuse_graphs"]

CudaGraphs = Literal["auto", "on", "off"]


def make_graphs(choice: CudaGraphs, why_not: str, device: torch.device) -> Graphs | None:
    """Return what runs the decode steps of a model on a device; None where their shapes cannot be fixed.

    `why_not` says why the model does not allow it, "" if it does. Raises ModelError for `on` where there is
    nothing to record.
    """
    if reason := elsewhere(device) or why_not:
        refuse_graphs(choice, reason)
        return None
    return Graphs(None if choice == "off" else partial(CudaRecorder, device))


def refuse_graphs(choice: CudaGraphs, reason: str) -> None:
    """Raise ModelError with the reason why nothing can be recorded, if that is asked for."""
    if choice == "on":
        raise ModelError(
            f"`cuda_graphs` is on, but {reason}.", hint="Leave `cuda_graphs` out: auto records what it can."
        )


def elsewhere(device: torch.device) -> str:
    """Return why nothing is recorded on a device that is not CUDA; "" for CUDA."""
    return "" if device.type == "cuda" else f"the model runs on {device.type}"
