"""The kernels of row_sums and row_cumsums: grid (R,), one program a row.

A program adds BLOCK values per iteration in a fixed order, so a row's bits do not depend on the other rows.
They may differ from the CPU's, which adds in another order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["BLOCK", "OPTIONS", "row_cumsums_triton", "row_sums_triton"]

BLOCK = 2048  # values per iteration
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}


@triton.jit  # type: ignore[untyped-decorator]
def _sums_kernel(values, found, width, stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), values.dtype.element_ty)
    for start in range(0, width, BLOCK):
        places = start + tl.arange(0, BLOCK)
        total += tl.load(values + row * stride + places, mask=places < width, other=0.0)
    tl.store(found + row, tl.sum(total, 0))


@triton.jit  # type: ignore[untyped-decorator]
def _cumsums_kernel(values, found, width, stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    before = tl.zeros((1,), values.dtype.element_ty)
    for start in range(0, width, BLOCK):
        places = start + tl.arange(0, BLOCK)
        some = tl.load(values + row * stride + places, mask=places < width, other=0.0)
        sums = before + tl.cumsum(some, 0)
        tl.store(found + row * width + places, sums, mask=places < width)
        # Carry the last sum exactly, so that prefix sums of values above zero never decrease.
        before = tl.sum(tl.where(tl.arange(0, BLOCK) == BLOCK - 1, sums, 0.0), 0, keep_dims=True)


def row_sums_triton(values: Tensor) -> Tensor:
    """As row_sums."""
    values = _with_plain_rows(values)
    rows, width = values.shape
    found = values.new_empty(rows, 1)
    if rows:
        _sums_kernel[(rows,)](values, found, width, values.stride(0), BLOCK=BLOCK, **OPTIONS)
    return found


def row_cumsums_triton(values: Tensor) -> Tensor:
    """As row_cumsums."""
    values = _with_plain_rows(values)
    found = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    if found.numel():
        rows, width = values.shape
        _cumsums_kernel[(rows,)](values, found, width, values.stride(0), BLOCK=BLOCK, **OPTIONS)
    return found


def _with_plain_rows(values: Tensor) -> Tensor:
    return values if values.stride(1) == 1 else values.contiguous()
