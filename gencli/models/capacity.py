"""Batch size by free memory, planned before a model is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gencli.errors import ModelError
from gencli.models.base import ModelSpec
from gencli.models.device import pick_device, pick_dtype, pick_kv_dtype
from gencli.models.files.card import Card
from gencli.models.files.quantization import Quantize
from gencli.models.free_memory import free_memory
from gencli.models.gguf.plan import weight_format
from gencli.models.memory import lane_bytes, row_bytes, weight_bytes

__all__ = ["MAX_BATCH", "Capacity", "Held", "plan_capacity", "plan_chunk", "process_memory"]

# Maximum batch size; beyond it a step takes proportionally longer.
MAX_BATCH = {"cpu": 64, "cuda": 256, "mps": 64}
_LEAST_CHUNK = 64  # tokens of a step; smaller steps read the weights too often
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
    kv_dtype: str = "auto",
    quantize: Quantize = "none",
    kv_memory: int | None = None,
) -> Capacity:
    """Return how many samples of up to `tokens` tokens, prompt included, fit beside the models' weights.

    The first model is the run's own; `quantize` applies to all. `kv_memory` (bytes) replaces the free
    memory. Raises ModelError if no sample fits.
    """
    chosen = pick_device(device)
    free = free_memory(chosen)
    formats = [weight_format(held.card.folder, quantize, dtype=dtype, device=chosen.type) for held in models]
    numbers = [
        pick_dtype(dtype, device=chosen, stored=held.card.weights.stored, is_quantized=weights != "none")[0]
        for held, weights in zip(models, formats, strict=True)
    ]
    kept = [pick_kv_dtype(kv_dtype, number) for number in numbers]
    sizes = [
        weight_bytes(held.card, number, chosen, weights)
        for held, number, weights in zip(models, numbers, formats, strict=True)
    ]
    lanes = [
        lane_bytes(held.card, held.lanes, tokens, number, chosen)
        for held, number in zip(models, kept, strict=True)
    ]
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
    fits = MAX_BATCH[chosen.type] if room is None else room // max(1, each)
    if fits < 1:
        raise ModelError(
            f"The keys and values of a sample of {min(tokens, models[0].card.context or tokens)} tokens take "
            f"{each:,} bytes; there is room for {max(0, room or 0):,}.",
            hint="Lower `max_tokens`, take a smaller `kv_dtype` or `dtype`, or raise `kv_memory`.",
        )
    return Capacity(min(fits, MAX_BATCH[chosen.type]), sizes[0], each, free, beside)


def plan_chunk(spec: ModelSpec, free: int | None, *, rows: int, most: int) -> int:
    """Return the token budget of a step, at most `most`, with temporary memory that fits `free` bytes.

    The memory is free beside the weights. A fifth of it is for a step, as plan_capacity plans keys and values
    in the rest: `rows` rows of logits, then tokens. A budget of 64, and twice `rows`, is never undercut.
    """
    if free is None or not spec.token_bytes:
        return most
    left = int((1 - _SHARE) * free) - rows * row_bytes(spec.vocab_size, spec.dtype)
    return min(most, max(_LEAST_CHUNK, 2 * rows, left // spec.token_bytes))
