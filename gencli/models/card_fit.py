"""Which formats of a model fit a GPU that need not be here, and how many texts of which length."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from gencli.models.capacity import MAX_BATCH
from gencli.models.device import pick_dtype
from gencli.models.files.card import Card, has_codes
from gencli.models.files.quantization import Format
from gencli.models.gguf.plan import kept_kinds
from gencli.models.kv.lengths import STEP
from gencli.models.memory import Need, need_of

__all__ = ["CONTEXT_BYTES", "CardFit", "card_fits"]

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
    need: Need
    lane: int | None
    fits: bool
    max_batch: int | None
    max_context: int | None


def card_fits(card: Card, memory: int, *, batch: int, tokens: int) -> tuple[CardFit, ...]:
    """Return what fits `memory` bytes, for `batch` texts of `tokens` tokens, the most exact formats first."""
    return tuple(_fit(card, memory, batch, tokens, *formats) for formats in _formats(card))


def _formats(card: Card) -> Iterator[tuple[torch.dtype, Format, torch.dtype]]:
    """Yield formats of states, weights, and keys and values."""
    weights: list[Format] = ["none"]
    if kept_kinds(card.folder):
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


def _fit(
    card: Card,
    memory: int,
    batch: int,
    tokens: int,
    dtype: torch.dtype,
    quantize: Format,
    kv_dtype: torch.dtype,
) -> CardFit:
    def need(lanes: int, length: int) -> Need:
        return need_of(
            card,
            dtype=dtype,
            device=_CUDA,
            lanes=lanes,
            tokens=length,
            kv_dtype=kv_dtype,
            quantize=quantize,
        )

    def is_in(lanes: int, length: int) -> bool:
        return need(lanes, length).total + CONTEXT_BYTES <= memory

    asked, lane = need(batch, tokens), need(1, tokens).kv
    steps = (card.context or tokens) // STEP
    return CardFit(
        dtype,
        quantize,
        kv_dtype,
        asked,
        lane,
        is_in(batch, tokens),
        None if lane is None else _most(lambda lanes: is_in(lanes, tokens), MAX_BATCH["cuda"]),
        None if lane is None else STEP * _most(lambda count: is_in(batch, STEP * count), steps),
    )


def _most(is_in: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that is in, 0 if 1 is not. What is larger takes more."""
    return bisect_right(range(1, most + 1), False, key=lambda number: not is_in(number))
