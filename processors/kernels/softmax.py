"""The softmax of many rows of logits, for those who need little of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from processors.kernels.bitmask import has_triton

__all__ = ["CACHED", "softmax_parts", "token_probability", "token_probability_torch"]

CACHED = 1 << 21  # logits that are looked at together: what a CPU's cache takes


def softmax_parts(logits: Tensor) -> Iterator[Tensor]:
    """The softmax of logits [R, V] some rows at a time; on a CPU each part is overwritten by the next."""
    rows, width = logits.shape
    if logits.is_cuda or rows * width <= CACHED:
        yield logits.softmax(dim=-1)
        return
    together = max(1, CACHED // width)
    buffer = torch.empty(together, width, dtype=logits.dtype, device=logits.device)
    for start in range(0, rows, together):
        some = logits[start : start + together]
        yield torch.softmax(some, dim=-1, out=buffer[: len(some)])


def token_probability(logits: Tensor, ids: Tensor) -> Tensor:
    """softmax(logits)[r, ids[r]] for each row: logits [R, V] float32, ids [R] int64, result [R] float32."""
    if logits.is_cuda and has_triton():
        from processors.kernels.token_probability_triton import token_probability_triton

        return token_probability_triton(logits, ids)
    return token_probability_torch(logits, ids)


def token_probability_torch(logits: Tensor, ids: Tensor) -> Tensor:
    """As token_probability, in PyTorch."""
    if not len(ids):
        return logits.new_empty(0)
    found, start = [], 0
    for softmax in softmax_parts(logits):
        found.append(softmax.gather(1, ids[start : start + len(softmax), None]))
        start += len(softmax)
    return torch.cat(found).squeeze(1)
