"""One choice: the kernels in order, as a function of tensors alone."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from processors.kernels.choice.bins import find_window
from processors.kernels.choice.draws import draw_listed
from processors.kernels.choice.edits import edit_facts, edit_listed
from processors.kernels.choice.parts import CAPACITY
from processors.kernels.choice.rows import all_facts, row_facts

__all__ = ["Edits", "Given", "Kind", "choose", "edited"]

Kind = Literal["greedy", "draw", "cut"]  # all rows are greedy, none is truncated, or some are


class Edits(NamedTuple):
    """Masks and penalties: edits [R, E], lists [R, N] or None, bit masks [R, ceil(V / 32)] or None.

    The others are those of History, and the slots [R] of the rows; None without lists.
    """

    edits: Tensor
    lists: Tensor | None = None
    masks: Tensor | None = None
    tokens: Tensor | None = None
    lengths: Tensor | None = None
    prompts: Tensor | None = None
    slots: Tensor | None = None


class Given(NamedTuple):
    """What a choice reads: logits [R, V], controls [R, C] (see `Control`), seeds and positions [R]."""

    logits: Tensor
    controls: Tensor
    seeds: Tensor
    positions: Tensor


def edited(logits: Tensor, controls: Tensor, edits: Edits) -> tuple[Tensor, Tensor]:
    """Return the edited logits [R, V] float32 and their facts. The logits are not changed."""
    new = torch.empty if edits.lists is None else torch.zeros
    work = new(logits.shape, dtype=torch.float32, device=logits.device)
    if edits.lists is not None:
        seen = (edits.tokens, edits.lengths, edits.prompts, edits.slots)
        edit_listed(logits, edits.edits, edits.lists, *seen, work)
    return work, edit_facts(logits, controls, edits.edits, edits.masks, work, edits.lists is not None)


def choose(given: Given, kind: Kind, edits: Edits | None = None) -> Tensor:
    """Return a token [R] int64 for each row, negative ones as those of Sampler.

    All shapes follow from those of the arguments, so a CUDA graph can record the launches.
    """
    logits, controls, seeds, positions = given
    if edits is None:
        facts, levels, marks, tokens = all_facts(logits, controls, kind == "cut")
    else:
        logits, facts = edited(logits, controls, edits)
        levels, marks, tokens = row_facts(logits, facts, controls, kind == "cut")
    if kind != "greedy":
        lists = torch.empty(len(logits), 2, CAPACITY, dtype=torch.int64, device=logits.device)
        tables = logits, controls, levels, facts, marks, lists
        draw_listed(*tables, seeds, positions, tokens, False)
        if kind == "cut":  # rows whose candidates a list does not hold
            find_window(*tables, tokens)
            draw_listed(*tables, seeds, positions, tokens, True)
    assert isinstance(tokens, Tensor)
    return tokens
