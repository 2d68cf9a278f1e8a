"""A guess of how long a model takes on this machine, from two short measurements and no weights."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

__all__ = ["Speed", "guess_seconds", "measure_speed"]

_SIDE = 1024  # of the matrices that are multiplied
_BYTES = 64 * 2**20  # that are read
_REPEATS = 3

Speed = tuple[float, float]  # bytes read, and numbers multiplied and added, a second


def measure_speed(device: torch.device, dtype: torch.dtype) -> Speed:
    """How fast this device reads memory and multiplies matrices: the best of a few short tries."""
    matrix = torch.ones(_SIDE, _SIDE, dtype=dtype, device=device)
    block = torch.ones(_BYTES // 4, dtype=torch.float32, device=device)
    return _BYTES / _best(lambda: block.sum().item()), _SIDE**3 / _best(
        lambda: (matrix @ matrix)[0, 0].item()
    )


def _best(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return max(1e-9, min(times[1:]))  # the first one warms up


def guess_seconds(
    speed: Speed, *, parameters: int, weights: int, batch: int, prompt_tokens: int, output_tokens: int
) -> float:
    """Seconds for so many tokens: each step reads all weights once, or multiplies, whichever takes longer."""
    reads, multiplies = speed
    step = max(weights / reads, batch * parameters / multiplies)
    return output_tokens / batch * step + prompt_tokens * parameters / multiplies
