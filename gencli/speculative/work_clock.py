"""The clock for costs of drafts."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

__all__ = ["Clock", "work_clock"]

Clock = Callable[[], float]  # seconds

_MAX_RESOLUTION = 1e-5  # seconds, far below a step's duration


def work_clock(device: torch.device) -> Clock:
    """Return `time.thread_time` for a model on a CPU, `time.perf_counter` otherwise.

    Thread time leaves out the load of other processes. Beside an accelerator the thread is idle, and where
    its resolution is coarser than 10 µs it is too inexact; then the wall clock is used.
    """
    is_fine = time.get_clock_info("thread_time").resolution <= _MAX_RESOLUTION
    return time.thread_time if device.type == "cpu" and is_fine else time.perf_counter
