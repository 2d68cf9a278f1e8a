"""Apply bit masks to logits: by Triton on CUDA if installed, else by PyTorch."""

from __future__ import annotations

import functools
from importlib.util import find_spec

import torch
from torch import Tensor

__all__ = ["apply_bitmask", "apply_bitmask_torch", "blocked_bits", "has_triton"]


def apply_bitmask(logits: Tensor, masks: Tensor) -> Tensor:
    """Set logits [R, V] to -inf in place where the bit in masks [R, ceil(V / 32)] int32 is 0."""
    if logits.is_cuda and has_triton():
        from processors.kernels.bitmask_triton import apply_bitmask_triton

        return apply_bitmask_triton(logits, masks)
    return apply_bitmask_torch(logits, masks)


def apply_bitmask_torch(logits: Tensor, masks: Tensor) -> Tensor:
    """As apply_bitmask. A table turns eight bits at a time into eight bools."""
    octets = masks.view(torch.uint8).flatten().to(torch.int32)
    blocked = blocked_bits(logits.device).index_select(0, octets).view(torch.bool)
    blocked = blocked.view(len(masks), 32 * masks.shape[1])
    return logits.masked_fill_(blocked[:, : logits.shape[1]], -torch.inf)


@functools.cache
def blocked_bits(device: torch.device) -> Tensor:
    """Return a table [256] int64: for each octet eight packed bools, True where its bit is 0."""
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) & 1
    return (bits == 0).view(torch.int64).flatten().to(device)


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None
