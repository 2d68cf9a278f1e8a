"""Estimate the run time of a model on this machine from three short measurements, without its weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import linear

from gencli.models.files.card import Card

__all__ = ["Speed", "guess_seconds", "measure_speed"]

_SIDE = 2048  # rows and columns of the matrix
_ROWS = 256  # rows multiplied with it at once
_CALLS = 500
_REPEATS = 5
# Overhead of Python and PyTorch calls, in small operations: per step, per layer of a transformers model, per
# sample. Fitted on models of 6, 8 and 24 layers, batches of 1, 8 and 32.
_STEP, _LAYER, _SAMPLE = 260, 265, 40


@dataclass(frozen=True, slots=True)
class Speed:
    """Measured speed of a machine.

    `reads` is bytes of weights per second, `multiplies` multiply-adds per second, `call` seconds per small
    operation.
    """

    reads: float
    multiplies: float
    call: float


def measure_speed(device: torch.device, dtype: torch.dtype) -> Speed:
    """Return the speed of the device: the best of a few short runs."""
    weights = torch.ones(_SIDE, _SIDE, dtype=dtype, device=device)
    one, many = (torch.ones(rows, _SIDE, dtype=dtype, device=device) for rows in (1, _ROWS))
    small = torch.ones(8, 8)
    return Speed(
        weights.nbytes / _best(lambda: linear(one, weights)[0, 0].item()),
        _ROWS * weights.numel() / _best(lambda: linear(many, weights)[0, 0].item()),
        _best(lambda: [small + small for _ in range(_CALLS)]) / _CALLS,
    )


def _best(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return max(1e-9, min(times[1:]))  # the first one warms up


def guess_seconds(
    speed: Speed, card: Card, *, weights: int, batch: int, prompt_tokens: int, output_tokens: int
) -> float:
    """Return the estimated seconds for the tokens of all samples, `batch` of them at once.

    A decode step reads all `weights` (bytes) once, multiplies them with every sample and makes its calls. For
    prompt tokens only the multiplications count.
    """
    each = card.weights.parameters / speed.multiplies
    calls = _STEP + _LAYER * (card.layers or 0) + _SAMPLE * batch
    step = weights / speed.reads + batch * each + calls * speed.call
    return output_tokens / batch * step + prompt_tokens * each
