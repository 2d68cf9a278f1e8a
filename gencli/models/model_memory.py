"""What a model takes on a machine or a GPU, before it is loaded: memory, whether it fits, how many texts
at once, and an estimate of the run time.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import linear

from gencli.errors import ModelError
from gencli.helpers import size
from gencli.models.backend import why_no_graphs
from gencli.models.decoder.products.dense_products import adds_wide, can_pack
from gencli.models.decoder.weight_readers import stays_in_file
from gencli.models.device import free_memory, pick_device, pick_dtype, pick_kv_dtype
from gencli.models.files.gguf_header import kept_bytes, kept_kinds, weight_format
from gencli.models.files.model_card import STEP, Card, has_codes, held_bytes, kv_bytes, whole_bytes
from gencli.models.files.model_files import Format, Quantize
from gencli.models.kv.lane_buffers import SPARE_ROWS, roomy, stored_width
from gencli.models.model_runner import ModelSpec

_SMALLER: tuple[Quantize, ...] = ("int8", "int4")  # formats that are named to who has too little memory
_CHUNK = 512  # prompt tokens of a step
_ROW_COPIES = 5  # float32 values of a row of logits: the row, its sorted values and ids, probabilities


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """The bytes that a model takes. `kv` is None if it does not depend on the length of the texts only."""

    weights: int
    kv: int | None
    step: int

    @property
    def total(self) -> int:
        return self.weights + (self.kv or 0) + self.step


def need_of(
    card: Card,
    *,
    dtype: torch.dtype,
    device: torch.device,
    lanes: int,
    tokens: int,
    kv_dtype: torch.dtype | None = None,
    quantize: Format = "none",
) -> ModelMemory:
    """Return what a model takes that computes in `dtype`, with `lanes` texts of up to `tokens` tokens."""
    return ModelMemory(
        weight_bytes(card, dtype, device, quantize),
        lane_bytes(card, lanes, tokens, kv_dtype or dtype, device),
        step_bytes(card, dtype, lanes),
    )


def weight_bytes(card: Card, dtype: torch.dtype, device: torch.device, quantize: Format = "none") -> int:
    """Return the bytes of a model's weights in memory, held as `quantize` says (see held_bytes)."""
    spec, codes, is_wide = card.spec, card.weights.codes, not adds_wide(dtype, device)
    if spec is None or has_codes(card) or quantize == "int8":
        return whole_bytes(card, dtype.itemsize, quantize)
    if quantize == "int4":
        whole = whole_bytes(card, dtype.itemsize, quantize)
        ends = spec.vocab_size * spec.hidden * (1 if spec.is_tied else 2)  # which have eight bits
        return whole + max(0, ends - ends * whole // max(1, card.weights.parameters))
    if quantize == "kept":
        held = spec.vocab_size * spec.hidden * dtype.itemsize
        other_bytes = dtype.itemsize if device.type != "cpu" else 2 if can_pack(torch.bfloat16) else 4
        head = 4 if is_wide else other_bytes
        kept = kept_bytes(card.folder, other_bytes, device.type, head)
        return kept + (0 if stays_in_file(held, device) else held)
    is_packed = device.type == "cpu" and can_pack(dtype)
    total = held_bytes(card, dtype.itemsize, device.type, is_packed=is_packed, is_head_wide=is_wide)
    if device.type == "cuda" and dtype.itemsize == 2:  # MXFP4 is kept
        total -= codes * dtype.itemsize - codes * 17 // 32
    return total


def lane_bytes(card: Card, lanes: int, tokens: int, dtype: torch.dtype, device: torch.device) -> int | None:
    """Return the bytes of the KV cache in `dtype` of full lanes; None if they depend on more than the length.

    A lane has room for a multiple of 256 tokens; for up to a quarter more, with a lane more, where steps have
    shapes for CUDA graphs.
    """
    length, spec = min(tokens, card.context or tokens), card.spec
    room = length
    why_not = why_no_graphs(spec, has_shared_lanes=card.lanes == "shared")
    if device.type == "cuda" and not why_not:
        room = roomy(length, card.context or length)
        lanes += SPARE_ROWS if lanes > 1 else 0  # one text alone fills its step
    total = kv_bytes(card, batch=lanes, context=room, number_bytes=dtype.itemsize)
    if total is None or spec is None:
        return total
    return total * stored_width(dtype, spec.head_dim) // spec.head_dim


def step_bytes(card: Card, dtype: torch.dtype, rows: int) -> int:
    """Return about the bytes of the largest step: 512 prompt tokens in a layer, or `rows` rows of logits."""
    spec = card.spec
    vocabulary = card.vocabulary if isinstance(card.vocabulary, int) else 0
    logits = row_bytes(vocabulary, dtype) * rows
    if spec is None:
        return logits
    return max(logits, _CHUNK * spec.token_numbers * dtype.itemsize)


def row_bytes(vocabulary: int, dtype: torch.dtype) -> int:
    """Return about the bytes of a row of logits in `dtype`, and of what is computed from it."""
    return vocabulary * (dtype.itemsize + 4 * _ROW_COPIES)


def check_fit(
    card: Card,
    dtype: torch.dtype,
    device: torch.device,
    free: int | None,
    quantize: Format = "none",
    beside: Sequence[str] = (),
) -> int:
    """Return the bytes of the weights and one short text; raise ModelError if `free` bytes are not enough.

    None, an unknown number, is enough. `beside` names models whose bytes are not in `free`.
    """
    lane = lane_bytes(card, 1, STEP, dtype, device) or 0
    weights = weight_bytes(card, dtype, device, quantize)
    if free is None or weights + lane <= free:
        return weights + lane
    name = {"none": str(dtype).removeprefix("torch."), "kept": card.weights.stored}.get(quantize, quantize)
    # Options with which the weights take less, and what they take then.
    options = [("`dtype` = bfloat16", weight_bytes(card, torch.bfloat16, device))]
    if weight_format(card.folder, "none", dtype="auto", device=device.type) == "kept":
        options.insert(0, ("`dtype` = auto", weight_bytes(card, torch.float32, device, "kept")))
    if device.type in ("cpu", "cuda") and card.spec is not None:
        options += [(f"`quantize` = {each}", weight_bytes(card, dtype, device, each)) for each in _SMALLER]
    fitting = [
        f"{option} ({size(least)})" for option, least in options if least < weights and least + lane <= free
    ]
    others = f" beside {' and '.join(beside)}" if beside else ""
    raise ModelError(
        f"{card.folder} needs {size(weights)} for its weights in {name} and {size(lane)} for the keys and "
        f"values of {STEP} tokens; {device} has {size(max(0, free))} free{others}.",
        hint=f"{' or '.join(fitting) or 'A smaller model'} fits; `memory_check` = off tries anyway.",
    )


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
    sizes, lanes = list[int](), list[int | None]()
    for held in models:
        weights = weight_format(held.card.folder, quantize, dtype=dtype, device=chosen.type)
        stored, is_narrow = held.card.weights.stored, weights != "none"
        number, _ = pick_dtype(dtype, device=chosen, stored=stored, is_quantized=is_narrow)
        kv_number = pick_kv_dtype(kv_dtype, number)
        sizes.append(weight_bytes(held.card, number, chosen, weights))
        lanes.append(lane_bytes(held.card, held.lanes, tokens, kv_number, chosen))
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


def plan_chunk(spec: ModelSpec, free: int | None, *, rows: int, limit: int) -> int:
    """Return the token budget of a step, at most `limit`, with temporary memory that fits `free` bytes.

    The memory is free beside the weights. A fifth of it is for a step, as plan_capacity plans keys and values
    in the rest: `rows` rows of logits, then tokens. A budget of 64, and twice `rows`, is never undercut.
    """
    if free is None or not spec.token_bytes:
        return limit
    left = int((1 - _SHARE) * free) - rows * row_bytes(spec.vocab_size, spec.dtype)
    return min(limit, max(_LEAST_CHUNK, 2 * rows, left // spec.token_bytes))


# What CUDA, its libraries and their work space take of a card: an assumption, as it differs by release.
CONTEXT_BYTES = 2**29
_CUDA = torch.device("cuda", 0)


@dataclass(frozen=True, slots=True)
class CardFit:
    """Memory that a model takes of a card in one choice of formats, in bytes.

    `need` is that of the texts asked for, `lane` the keys and values of one of them. `max_batch` is the
    largest number of such texts, `max_context` the greatest length in tokens of as many texts; 0 if not even
    one fits, None if the model keeps a state.
    """

    dtype: torch.dtype
    quantize: Format
    kv_dtype: torch.dtype
    need: ModelMemory
    lane: int | None
    fits: bool
    max_batch: int | None
    max_context: int | None


def card_fits(card: Card, memory: int, *, batch: int, tokens: int) -> tuple[CardFit, ...]:
    """Return what fits `memory` bytes, for `batch` texts of `tokens` tokens, the most exact formats first."""
    return tuple(_fit(card, memory, batch, tokens, formats) for formats in _formats(card))


_Formats = tuple[torch.dtype, Format, torch.dtype]  # of states, weights, and keys and values


def _formats(card: Card) -> Iterator[_Formats]:
    weights: list[Format] = ["none"]
    if kept_kinds(card.folder, _CUDA.type):
        weights = ["kept", "none"]
    elif card.spec is not None and not has_codes(card):
        weights = ["none", "int8", "int4"]
    for quantize in weights:
        is_quantized = quantize != "none" or has_codes(card)
        dtype, _ = pick_dtype("auto", device=_CUDA, stored=card.weights.stored, is_quantized=is_quantized)
        if dtype == torch.float32:
            yield dtype, quantize, dtype
            dtype = torch.bfloat16
        yield dtype, quantize, dtype
        if card.spec is not None:
            yield dtype, quantize, torch.int8
            yield dtype, quantize, torch.float8_e4m3fn


def _fit(card: Card, memory: int, batch: int, tokens: int, formats: _Formats) -> CardFit:
    dtype, quantize, kv_dtype = formats
    need = partial(need_of, card, dtype=dtype, device=_CUDA, kv_dtype=kv_dtype, quantize=quantize)

    def is_in(lanes: int, length: int) -> bool:
        return need(lanes=lanes, tokens=length).total + CONTEXT_BYTES <= memory

    lane, steps = need(lanes=1, tokens=tokens).kv, (card.context or tokens) // STEP
    return CardFit(
        dtype,
        quantize,
        kv_dtype,
        need(lanes=batch, tokens=tokens),
        lane,
        is_in(batch, tokens),
        None if lane is None else _most(lambda lanes: is_in(lanes, tokens), MAX_BATCH["cuda"]),
        None if lane is None else STEP * _most(lambda count: is_in(batch, STEP * count), steps),
    )


def _most(is_in: Callable[[int], bool], limit: int) -> int:
    """Return the largest number up to `limit` that is in, 0 if 1 is not. What is larger takes more."""
    return bisect_right(range(1, limit + 1), False, key=lambda number: not is_in(number))


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
    single, several = (torch.ones(rows, _SIDE, dtype=dtype, device=device) for rows in (1, _ROWS))
    small = torch.ones(8, 8)
    return Speed(
        weights.nbytes / _best(lambda: linear(single, weights)[0, 0].item()),
        _ROWS * weights.numel() / _best(lambda: linear(several, weights)[0, 0].item()),
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
