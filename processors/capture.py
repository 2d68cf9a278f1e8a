"""The capture of a CUDA graph that leaves nothing behind where it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import torch

__all__ = ["capture"]

_CAPTURING = Lock()  # PyTorch allows one capture at a time in a process


@contextmanager
def capture(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> Iterator[None]:
    """Capture into `graph` what this thread launches within, on `stream` and with memory of `pool`.

    torch.cuda.graph is not used. If the capture cannot end, because something in it is not allowed, it leaves
    its stream the current one, and the allocator in the belief that a capture goes on: from then on that
    would give back no memory and would not use blocks of several streams again. It also waits for the device
    and frees the memory that the allocator has in reserve.
    """
    with _CAPTURING, torch.cuda.stream(stream):
        # Other threads may use the device meanwhile, so only calls of this one are checked.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the first error says why
                _end(graph, stream, pool)
            raise
        _end(graph, stream, pool)


def _end(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> None:
    try:
        graph.capture_end()
    except BaseException:
        with suppress(RuntimeError):  # the allocator knows that it is over
            torch._C._cuda_endAllocateToPool(stream.device.index, pool)
            torch._C._cuda_releasePool(stream.device.index, pool)
        raise
