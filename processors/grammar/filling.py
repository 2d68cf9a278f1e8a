"""What all back ends do alike with masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from processors.grammar.backend import Ask, Backend, Grammar, Matcher

__all__ = ["allows_text", "fill_by_position", "mask_of"]


def fill_by_position(
    asks: Sequence[Ask], fill: Callable[[list[tuple[Matcher, int]]], None]
) -> list[list[bool]]:
    """Backend.fill by a function that fills one mask for each (matcher, row), in one threaded call.

    It is called once for each position, so once in all where there are no drafts.
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
    """The mask [size] of what may come next, and whether the text may end here."""
    mask = torch.zeros(1, size, dtype=torch.int32)
    ((may_end,),) = backend.fill([Ask(matcher, (), 0)], mask)
    return mask[0], may_end


def allows_text(backend: Backend, grammar: Grammar, text_mask: Tensor) -> bool:
    """Whether any text can begin, the empty one among them; `text_mask` has the ids that are text."""
    mask, may_end = mask_of(backend, grammar.matcher(), len(text_mask))
    return may_end or bool((mask & text_mask).any())
