"""Capture of a CUDA graph that restores stream and allocator if the capture fails."""

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
    """Capture the launches of this thread in the block into `graph`, on `stream`, with memory of `pool`.

    Replaces torch.cuda.graph, which after a failed capture leaves its stream the current one and the
    allocator in capture mode: cached memory is then never freed, and blocks used on several streams are never
    reused. torch.cuda.graph also synchronises with the device and empties the allocator's cache.
    """
    with _CAPTURING, torch.cuda.stream(stream):
        # thread_local: other threads may use the device meanwhile; only calls of this thread are checked.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the first error is the cause
                _end(graph, stream, pool)
            raise
        _end(graph, stream, pool)


def _end(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> None:
    try:
        graph.capture_end()
    except BaseException:
        with suppress(RuntimeError):  # tells the allocator that the capture is over
            torch._C._cuda_endAllocateToPool(stream.device.index, pool)
            torch._C._cuda_releasePool(stream.device.index, pool)
        raise
