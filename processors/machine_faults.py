"""Errors of the machine rather than of the called code: memory is full, or the GPU has failed."""

from __future__ import annotations

import re

__all__ = ["device_fault", "is_out_of_memory"]

_FULL = re.compile(
    "out of memory|can't allocate memory|not enough memory|CU(BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
# Prefixes of GPU errors of PyTorch, its libraries and Triton.
_DEVICE = re.compile(r"(CUDA|HIP|cuDNN|NCCL)( \w+)? error|Triton Error \[\w+\]|NVIDIA driver", re.IGNORECASE)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the host or on an accelerator."""
    is_full = isinstance(error, RuntimeError) and _FULL.search(str(error)) is not None
    return isinstance(error, MemoryError) or is_full


def device_fault(error: BaseException) -> str:
    """Return the message of a failed GPU or its driver, in one line; "" for any other error.

    After most of these faults every call on the GPU fails until the process ends.
    """
    if not isinstance(error, RuntimeError) or is_out_of_memory(error) or not _DEVICE.search(str(error)):
        return ""
    return str(error).strip().partition("\n")[0].rstrip(".")
