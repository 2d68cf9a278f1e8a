"""Whether a decoder's steps are recorded as CUDA graphs."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch

from gencli.errors import ModelError
from processors.graphs import CudaRecorder, Graphs

__all__ = ["CudaGraphs", "make_graphs", "why_no_graphs"]

CudaGraphs = Literal["auto", "on", "off"]


def make_graphs(choice: CudaGraphs, device: torch.device, *, reads_experts: bool) -> Graphs | None:
    """Return what runs the decode steps of a decoder on a device; None where their shapes cannot be fixed.

    `reads_experts` says whether the host looks up which experts a token uses. Raises ModelError for `on`
    where there is nothing to record.
    """
    reason = why_no_graphs(device, reads_experts=reads_experts)
    if choice == "on" and reason:
        raise ModelError(
            f"`cuda_graphs` is on, but {reason}.", hint="Leave `cuda_graphs` out: auto records what it can."
        )
    if reason:
        return None
    return Graphs(None if choice == "off" else partial(CudaRecorder, device))


def why_no_graphs(device: torch.device, *, reads_experts: bool) -> str:
    """Return why the decode steps of a decoder cannot be recorded on a device; "" if they can."""
    if device.type != "cuda":
        return f"the model runs on {device.type}"
    if reads_experts:
        return "the host looks up which experts a token uses"
    return ""
