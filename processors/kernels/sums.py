"""Row sums of floating-point values whose bits do not depend on the number of rows (batch invariance).

PyTorch distributes the threads of a GPU over the rows, so the order of additions within a row depends on
their number: in `sum` from 64 values on, and in `cumsum`, which has another kernel for a single row
(ATen/native/cuda/Reduce.cuh and ScanUtils.cuh).
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from processors.kernels.operation import operation

__all__ = ["row_cumsums", "row_logsumexps", "row_sums"]


def row_sums(values: Tensor) -> Tensor:
    """Return the sum [R, 1] of each row of values [R, N]."""
    return cast(Tensor, _sums(values)) if values.is_cuda else values.sum(1, keepdim=True)


def row_cumsums(values: Tensor) -> Tensor:
    """Return the inclusive prefix sums [R, N] of each row of values [R, N]."""
    return cast(Tensor, _cumsums(values)) if values.is_cuda else values.cumsum(1)


def row_logsumexps(values: Tensor) -> Tensor:
    """Return the log-sum-exp [R, 1] of each row of values [R, N]."""
    if not values.is_cuda:
        return values.logsumexp(1, keepdim=True)
    peak = values.amax(1, keepdim=True)
    peak = torch.where(peak.isinf(), 0, peak)
    return row_sums((values - peak).exp()).log() + peak


_sums = operation(
    "row_sums(Tensor values) -> Tensor",
    lambda values: values.sum(1, keepdim=True),
    "processors.kernels.sums_triton:row_sums_triton",
)
_cumsums = operation(
    "row_cumsums(Tensor values) -> Tensor",
    lambda values: values.cumsum(1),
    "processors.kernels.sums_triton:row_cumsums_triton",
)
