"""The clock that costs of drafts are weighed by."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

__all__ = ["Clock", "work_clock"]

Clock = Callable[[], float]  # seconds

_FINE = 1e-5  # seconds: far below those of a step


def work_clock(device: torch.device) -> Clock:
    """For a model on this device: what the thread computes on a CPU, else what the clock on the wall says.

    The thread feeds the model and takes its share in all products, so what other processes do to its steps is
    left out; beside an accelerator it would be idle. Where the system counts too coarsely it is the wall's.
    """
    is_fine = time.get_clock_info("thread_time").resolution <= _FINE
    return time.thread_time if device.type == "cpu" and is_fine else time.perf_counter
