"""Apply bit masks to logits: by Triton on CUDA if installed, else by PyTorch."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from processors.kernels.operation import operation

__all__ = ["apply_bitmask", "apply_bitmask_torch", "blocked_bits"]


def apply_bitmask(logits: Tensor, masks: Tensor) -> Tensor:
    """Set logits [R, V] to -inf in place where the bit in masks [R, ceil(V / 32)] int32 is 0."""
    (_on_gpu if logits.is_cuda else apply_bitmask_torch)(logits, masks)
    return logits


def apply_bitmask_torch(logits: Tensor, masks: Tensor) -> None:
    """As apply_bitmask. A table expands each octet of a mask to eight bools."""
    octets = masks.view(torch.uint8).flatten().to(torch.int32)
    blocked = blocked_bits(logits.device).index_select(0, octets).view(torch.bool)
    blocked = blocked.view(len(masks), 32 * masks.shape[1])
    logits.masked_fill_(blocked[:, : logits.shape[1]], -torch.inf)


@functools.cache
def blocked_bits(device: torch.device) -> Tensor:
    """Return a table [256] int64: entry o packs eight bools, True where the bit of octet o is 0."""
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) & 1
    return (bits == 0).view(torch.int64).flatten().to(device, non_blocking=True)


_on_gpu = operation(
    "apply_bitmask(Tensor(a!) logits, Tensor masks) -> ()",
    apply_bitmask_torch,
    "processors.kernels.bitmask_triton:apply_bitmask_triton",
)
