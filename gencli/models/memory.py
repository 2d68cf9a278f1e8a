"""How much memory a model takes: its weights, keys and values, and the buffers of a step; whether it fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from gencli.errors import ModelError
from gencli.models.backend import why_no_graphs
from gencli.models.decoder.embeddings import stays_in_file
from gencli.models.decoder.products.dense import adds_wide
from gencli.models.files.card import Card, has_codes, kv_bytes, whole_bytes
from gencli.models.files.quantization import Format, Quantize
from gencli.models.gguf.plan import kept_bytes, weight_format
from gencli.models.kv.formats import stored_width
from gencli.models.kv.lengths import STEP
from gencli.models.kv.static_steps import SPARE_ROWS, roomy
from gencli.models.onednn import can_pack
from gencli.units import size

__all__ = ["Need", "check_fit", "lane_bytes", "need_of", "row_bytes", "step_bytes", "weight_bytes"]

_SMALLER: tuple[Quantize, ...] = ("int8", "int4")  # formats that are named to who has too little memory
_CHUNK = 512  # prompt tokens of a step
_ROW_COPIES = 5  # float32 values of a row of logits: the row, its sorted values and ids, probabilities


@dataclass(frozen=True, slots=True)
class Need:
    """The bytes that a model takes. `kv` is None if it does not depend on the length of the texts only."""

    weights: int
    kv: int | None
    step: int

    @property
    def total(self) -> int:
        """The sum of what is known."""
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
) -> Need:
    """Return what a model takes that computes in `dtype`, with `lanes` texts of up to `tokens` tokens."""
    return Need(
        weight_bytes(card, dtype, device, quantize),
        lane_bytes(card, lanes, tokens, kv_dtype or dtype, device),
        step_bytes(card, dtype, lanes),
    )


def weight_bytes(card: Card, dtype: torch.dtype, device: torch.device, quantize: Format = "none") -> int:
    """Return the bytes of a model's weights in memory, held as `quantize` says.

    gencli's own decoder leaves large embeddings in their file. A packed vocabulary projection that is tied to
    embeddings in memory is a second copy of them. Of weights in 16 bits it has 32, but on a GPU of NVIDIA.
    """
    whole, spec = whole_bytes(card, dtype.itemsize, quantize), card.spec
    if quantize == "none" and device.type == "cuda" and dtype.itemsize == 2 and spec is not None:
        whole -= card.weights.codes * dtype.itemsize - card.weights.codes * 17 // 32  # MXFP4 is kept
    if spec is not None and quantize == "int4" and not has_codes(card):
        ends = spec.vocab_size * spec.hidden * (1 if spec.is_tied else 2)  # which have eight bits
        return whole + max(0, ends - ends * whole // max(1, card.weights.parameters))
    if has_codes(card) or quantize in ("int8", "int4") or spec is None or not whole:
        return whole
    if quantize == "kept":
        held = spec.vocab_size * spec.hidden * dtype.itemsize
        rest = dtype.itemsize if device.type != "cpu" else 2 if can_pack(torch.bfloat16) else 4
        head = rest if adds_wide(dtype, device) else 4
        return kept_bytes(card.folder, rest, head) + (0 if stays_in_file(held, device) else held)
    embeddings = spec.vocab_size * spec.hidden * dtype.itemsize
    if dtype.itemsize == 2 and not adds_wide(dtype, device):
        layers = whole - (embeddings if spec.is_tied else 2 * embeddings)
        return layers + 2 * embeddings + (0 if stays_in_file(embeddings, device) else embeddings)
    is_shared = spec.is_tied and not (device.type == "cpu" and can_pack(dtype))
    if is_shared:
        return whole
    if stays_in_file(embeddings, device):
        return whole if spec.is_tied else whole - embeddings
    return whole + embeddings if spec.is_tied else whole


def lane_bytes(card: Card, lanes: int, tokens: int, dtype: torch.dtype, device: torch.device) -> int | None:
    """Return the bytes of the KV cache in `dtype` of full lanes; None if they depend on more than the length.

    A lane has room for a multiple of 256 tokens; for up to a quarter more, with a lane more, where steps have
    shapes for CUDA graphs.
    """
    length, spec = min(tokens, card.context or tokens), card.spec
    room = -(-length // STEP) * STEP
    why_not = why_no_graphs(spec, has_shared_lanes=card.lanes == "shared")
    if device.type == "cuda" and not why_not:
        room = roomy(length, card.context or length)
        lanes += SPARE_ROWS if lanes > 1 else 0  # one text alone fills its step
    found = kv_bytes(card, batch=lanes, context=room, number_bytes=dtype.itemsize)
    if found is None or spec is None:
        return found
    return found * stored_width(dtype, spec.head_dim) // spec.head_dim


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
    fitting = [
        f"{option} ({size(least)})"
        for option, least in _smaller(card, dtype, device, weights)
        if least + lane <= free
    ]
    raise ModelError(
        f"{card.folder} needs {size(weights)} for its weights in {name} and {size(lane)} for the keys and "
        f"values of {STEP} tokens; {device} has {size(max(0, free))} free{_beside(beside)}.",
        hint=f"{' or '.join(fitting) or 'A smaller model'} fits; `memory_check` = off tries anyway.",
    )


def _beside(models: Sequence[str]) -> str:
    return f" beside {' and '.join(models)}" if models else ""


def _smaller(card: Card, dtype: torch.dtype, device: torch.device, weights: int) -> Iterator[tuple[str, int]]:
    """Yield options with which the weights take less than `weights` bytes, and what they take then."""
    found = [("`dtype` = bfloat16", weight_bytes(card, torch.bfloat16, device))]
    if weight_format(card.folder, "none", dtype="auto", device=device.type) == "kept":
        found.insert(0, ("`dtype` = auto", weight_bytes(card, torch.float32, device, "kept")))
    if device.type in ("cpu", "cuda") and card.spec is not None:
        found += [(f"`quantize` = {name}", weight_bytes(card, dtype, device, name)) for name in _SMALLER]
    yield from (one for one in found if one[1] < weights)
