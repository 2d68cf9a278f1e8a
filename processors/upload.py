"""Asynchronous copies of host values to a device, and of values of a device to the host."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["copy_to", "start_download", "upload", "upload_into", "upload_ints"]

_MOST_STAGED = 2**16  # bytes that CUDA copies from pageable memory without synchronising


def upload(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return host values as a tensor on `device`, copied asynchronously.

    torch.tensor(values, device=device) would synchronise with the device.
    """
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


def upload_ints(values: Sequence[int], device: torch.device) -> Tensor:
    """Return integers [N] as int64 on `device`, copied asynchronously, in a third of the time of `upload`."""
    if not values:
        return torch.empty(0, dtype=torch.int64, device=device)
    found = torch.frombuffer(array("q", values), dtype=torch.int64)
    return found if device.type == "cpu" else found.to(device, non_blocking=True)


def upload_into(values: Sequence[int], target: Tensor) -> None:
    """Write a few integers [N] into `target` [N] int64 on a device, copied asynchronously."""
    target.copy_(torch.frombuffer(array("q", values), dtype=torch.int64), non_blocking=True)


def copy_to(device: torch.device, host: Tensor) -> Tensor:
    """Return a copy of a host tensor on `device`, copied asynchronously whatever its size."""
    if device.type == "cuda" and host.nbytes > _MOST_STAGED:
        host = torch.empty_like(host, pin_memory=True).copy_(host)
    return host.to(device, non_blocking=True)


def start_download(values: Tensor) -> Callable[[], list[Any]]:
    """Start to copy a tensor to the host. Return a function that waits for the copy and returns the values.

    Work launched after the copy is not waited for. Without a GPU the values are read when the function is
    called.
    """
    if not values.is_cuda:
        return values.tolist
    host = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record(torch.cuda.current_stream(values.device))

    def read() -> list[Any]:
        copied.synchronize()
        found: list[Any] = host.tolist()
        return found

    return read
