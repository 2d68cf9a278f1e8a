"""Bit masks over tokens: rows of 32-bit words; bit i of word w is token 32 w + i. Filled by a matcher."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from processors.grammar.backends.base import Ask, Backend, Grammar, Matcher
from processors.kernels.bitmask import blocked_bits
from processors.upload import upload

__all__ = [
    "allow_only",
    "allowed_ids",
    "allows",
    "allows_text",
    "count_allowed",
    "fill_by_position",
    "forbid",
    "mask_of",
    "pack",
    "set_ids",
    "words",
]


def words(width: int) -> int:
    """Return the number of 32-bit words for `width` ids."""
    return (width + 31) // 32


def set_ids(masks: Tensor, ids: Sequence[int], allowed: Tensor) -> None:
    """Allow `ids` in the rows of masks [R, W] where `allowed` [R] is True, forbid them in the others."""
    for token in ids:
        word, bit = token // 32, torch.tensor(1 << token % 32, dtype=torch.int64).to(torch.int32)
        column = masks[:, word]
        masks[:, word] = torch.where(allowed, column | bit, column & ~bit)


def allows(mask: Tensor, token: int) -> bool:
    """Whether a mask [W] allows this id."""
    return bool(int(mask[token // 32]) >> token % 32 & 1)


def allow_only(mask: Tensor, token: int) -> None:
    """Forbid all ids but this one in a mask [W], in place."""
    mask.zero_()
    mask[token // 32] = torch.tensor(1 << token % 32, dtype=torch.int64).to(torch.int32)


def allowed_ids(mask: Tensor, width: int) -> Tensor:
    """Return the ids below `width` that a mask [W] allows, ascending, [n] int64."""
    octets = mask.view(torch.uint8).to(torch.int32)
    blocked = blocked_bits(mask.device).index_select(0, octets).view(torch.bool)
    return (~blocked[:width]).nonzero().flatten()


def forbid(mask: Tensor, ids: Tensor) -> None:
    """Forbid these ids [n] int64 in a mask [W], in place."""
    mask &= ~pack(ids, len(mask))


def pack(ids: Tensor, size: int) -> Tensor:
    """Return a mask [size] that allows exactly these ids [n] int64."""
    flags = torch.zeros(size, 32, dtype=torch.int64)
    flags.view(-1)[ids] = 1
    return (flags << torch.arange(32)).sum(-1).to(torch.int32)


def count_allowed(masks: Tensor) -> Tensor:
    """Return the number of ids that each row of masks [R, W] int32 allows, [R] int64."""
    counts = _ones(masks.device).index_select(0, masks.view(torch.uint8).flatten().to(torch.int32))
    return counts.view(len(masks), 4 * masks.shape[1]).sum(-1)


@functools.cache
def _ones(device: torch.device) -> Tensor:
    return upload([octet.bit_count() for octet in range(256)], device)


def fill_by_position(
    asks: Sequence[Ask], fill: Callable[[list[tuple[Matcher, int]]], None]
) -> list[list[bool]]:
    """Implement Backend.fill by `fill`, which fills one mask for each (matcher, row) in one threaded call.

    `fill` is called once per draft position; once in all without drafts.
    """
    complete: list[list[bool]] = [[] for _ in asks]
    alive = list(range(len(asks)))
    try:
        while alive:
            fill([(asks[i].matcher, asks[i].row + len(complete[i])) for i in alive])
            for i in alive:
                complete[i].append(asks[i].matcher.is_complete())
            alive = [i for i in alive if _step(asks[i], len(complete[i]) - 1)]
    finally:
        for ask, ends in zip(asks, complete, strict=True):
            if len(ends) > 1:
                ask.matcher.rollback(len(ends) - 1)
    return complete


def _step(ask: Ask, position: int) -> bool:
    return position < len(ask.drafts) and ask.matcher.accept(ask.drafts[position])


def mask_of(backend: Backend, matcher: Matcher, size: int) -> tuple[Tensor, bool]:
    """Return the mask [size] of a matcher, and whether the text may end here."""
    mask = torch.zeros(1, size, dtype=torch.int32)
    ((may_end,),) = backend.fill([Ask(matcher, (), 0)], mask)
    return mask[0], may_end


def allows_text(backend: Backend, grammar: Grammar, text_mask: Tensor) -> bool:
    """Whether the grammar allows any text, the empty one included; `text_mask` is the mask of text ids."""
    mask, may_end = mask_of(backend, grammar.matcher(), len(text_mask))
    return may_end or bool((mask & text_mask).any())
