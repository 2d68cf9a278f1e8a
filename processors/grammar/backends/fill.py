"""Mask operations shared by the back ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from processors.grammar.backends.base import Ask, Backend, Grammar, Matcher

__all__ = ["allows_text", "fill_by_position", "mask_of"]


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
