"""Batch size by free memory, planned before a model is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from gencli.errors import ModelError
from gencli.models.device import pick_device, pick_dtype
from gencli.models.files.card import Card, Weights, kv_bytes
from gencli.models.files.quantization import Quantize
from gencli.models.kv.lengths import STEP

__all__ = ["Capacity", "Held", "free_memory", "plan_capacity", "process_memory"]

# Maximum batch size; beyond it a step takes proportionally longer.
_MAX_BATCH = {"cpu": 64, "cuda": 256, "mps": 64}
_CODES = ("I8", "U8")  # number formats of quantized weights in files
_SHARE = 0.8  # of the free memory; the rest is for activations, logits and buffers that grow


@dataclass(frozen=True, slots=True)
class Held:
    """A model in memory with `lanes` KV lanes per sample; the name of the run's own model is ""."""

    name: str
    card: Card
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Capacity:
    """The planned batch size, and the sizes it is computed from, in bytes.

    `weights` are those of the run's own model, `beside` those of other models by name. `kv_bytes` is the KV
    cache of one sample in all models, None if it does not depend on the length only. `free` is None if the
    system does not say.
    """

    max_batch: int
    weights: int
    kv_bytes: int | None
    free: int | None
    beside: tuple[tuple[str, int], ...] = ()


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes on a device; None if the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def process_memory() -> int | None:
    """Return the resident bytes of this process; None if the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def plan_capacity(
    models: Sequence[Held],
    *,
    tokens: int,
    dtype: str,
    device: str,
    quantize: Quantize = "none",
    kv_memory: int | None = None,
) -> Capacity:
    """Return how many samples of up to `tokens` tokens, prompt included, fit beside the models' weights.

    The first model is the run's own; `quantize` applies to all. `kv_memory` (bytes) replaces the free
    memory. Raises ModelError if no sample fits.
    """
    chosen = pick_device(device)
    free = free_memory(chosen)
    numbers = [
        pick_dtype(dtype, device=chosen, stored=held.card.weights.stored, is_quantized=quantize != "none")[
            0
        ].itemsize
        for held in models
    ]
    sizes = [
        _weight_bytes(held.card.weights, number, quantize)
        for held, number in zip(models, numbers, strict=True)
    ]
    lanes = [_lane_bytes(held, tokens, number) for held, number in zip(models, numbers, strict=True)]
    beside = tuple((held.name, size) for held, size in zip(models, sizes, strict=True) if held.name and size)
    if None in lanes:
        if kv_memory is not None:
            raise ModelError(
                "`kv_memory` cannot be planned: this model keeps a state, or its files do not say how much.",
                hint="Give `max_batch` a number.",
            )
        return Capacity(8, sizes[0], None, free, beside)
    each = sum(lane or 0 for lane in lanes)
    room = kv_memory if kv_memory is not None else None if free is None else int(_SHARE * (free - sum(sizes)))
    fits = _MAX_BATCH[chosen.type] if room is None else room // max(1, each)
    if fits < 1:
        raise ModelError(
            f"The keys and values of a sample of {min(tokens, models[0].card.context or tokens)} tokens take "
            f"{each:,} bytes; there is room for {max(0, room or 0):,}.",
            hint="Lower `max_tokens`, take a smaller `dtype`, or raise `kv_memory`.",
        )
    return Capacity(min(fits, _MAX_BATCH[chosen.type]), sizes[0], each, free, beside)


def _weight_bytes(weights: Weights, number: int, quantize: Quantize) -> int:
    """Return the bytes of a model's weights; groups of four bits have scales of one bit a weight."""
    if weights.stored in _CODES:
        return weights.bytes
    return weights.parameters * {"none": 8 * number, "int8": 8, "int4": 5}[quantize] // 8


def _lane_bytes(held: Held, tokens: int, number: int) -> int | None:
    """Return the bytes of a sample's lanes in a model; None if they do not depend on the length only."""
    length = min(tokens, held.card.context or tokens)
    return kv_bytes(held.card, batch=held.lanes, context=-(-length // STEP) * STEP, number_bytes=number)
