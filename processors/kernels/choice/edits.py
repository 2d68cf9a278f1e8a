"""Masks and penalties of a chain: the logits that they change, and the facts of the blocks of all."""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from processors.kernels.bitmask import apply_bitmask_torch
from processors.kernels.choice.facts import facts_of
from processors.kernels.choice.parts import Control, heat
from processors.kernels.operation import operation
from processors.stages.tokens import HIGHEST, LOWEST

__all__ = [
    "NUM_EDITS",
    "Edit",
    "Listed",
    "edit_facts",
    "edit_facts_torch",
    "edit_listed",
    "edit_listed_torch",
]


class Edit(IntEnum):
    """Columns of edits [R, E] float64. A penalty of 0 is off; scopes are those of PenaltyParams by index."""

    SIZE = 0  # ids from here on are masked
    REPETITION = 1  # and its scope and window behind it
    FREQUENCY = 4
    PRESENCE = 7


NUM_EDITS = 10


class Listed(IntEnum):
    """Bits 32 and up of an entry in the lists [R, N] int64, whose lower bits are an id; -1 for no entry."""

    NO_REPETITION = 1  # the penalty spares the id
    NO_FREQUENCY = 2
    NO_PRESENCE = 4
    MASKED = 8


def edit_listed_torch(
    logits: Tensor,
    edits: Tensor,
    lists: Tensor,
    tokens: Tensor,
    lengths: Tensor,
    prompts: Tensor,
    slots: Tensor,
    work: Tensor,
) -> None:
    """As edit_listed, in PyTorch, row by row."""
    for row, slot in enumerate(slots.tolist()):
        length, prompt, old = int(lengths[slot]), int(prompts[slot]), logits[row].double()
        new, is_edited = old.clone(), torch.zeros_like(old, dtype=torch.bool)
        entries = lists[row][lists[row] >= 0]
        ids, bits = entries & 0xFFFFFFFF, entries >> 32
        for field, spared in zip((Edit.REPETITION, Edit.FREQUENCY, Edit.PRESENCE), Listed, strict=False):
            penalty, scope, window = edits[row, field : field + 3].tolist()
            end = prompt if scope == 0 else length
            start = max(prompt if scope == 1 else 0, end - window)
            seen = tokens[slot, int(start) : end]
            counts = seen[seen < len(old)].bincount(minlength=len(old)) * (penalty != 0)
            counts[ids[(bits & spared) > 0]] = 0
            is_edited |= counts > 0
            if field == Edit.REPETITION:
                changed = torch.where(new > 0, new / max(penalty, 1e-300), new * penalty)
            else:
                changed = new - penalty * (counts.double() if field == Edit.FREQUENCY else 1)
            changed = changed.clamp(LOWEST, HIGHEST).float().double()
            new = torch.where((counts > 0) & ~new.isinf(), changed, new)
        masked = ids[(bits & Listed.MASKED) > 0]
        is_edited[masked] = True
        new[masked] = torch.where(old[masked] < torch.inf, -torch.inf, old[masked])
        work[row] = torch.where(is_edited, torch.where(new == 0, -0.0, new), 0).float()


def edit_facts_torch(
    logits: Tensor, controls: Tensor, edits: Tensor, masks: Tensor | None, work: Tensor, is_listed: bool
) -> Tensor:
    """As edit_facts, in PyTorch."""
    values = logits.float()
    if is_listed:
        values = torch.where(work.view(torch.int32) == 0, values, work)
    masked = values.masked_fill(
        torch.arange(values.shape[1], device=values.device) >= edits[:, Edit.SIZE, None], -torch.inf
    )
    if masks is not None:
        apply_bitmask_torch(masked, masks)
    work.copy_(torch.where(values < torch.inf, masked, values))
    return facts_of(work, heat(controls, Control.HEAT_CUT))


edit_listed = operation(
    "edit_listed(Tensor logits, Tensor edits, Tensor lists, Tensor tokens, Tensor lengths, Tensor prompts, "
    "Tensor slots, Tensor(a!) work) -> ()",
    edit_listed_torch,
    "processors.kernels.choice.edits_triton:edit_listed_triton",
)
"""Write the logits that penalties and lists of masked ids change to work [R, V] float32, all +0 before.

tokens [S, L], lengths [S] and prompts [S] are those of History, slots [R] its slots of the rows. What is
neither finite nor -inf is not masked, so that a fault of the model is seen.
"""

edit_facts = operation(
    "edit_facts(Tensor logits, Tensor controls, Tensor edits, Tensor? masks, Tensor(a!) work, "
    "bool is_listed) -> Tensor",
    edit_facts_torch,
    "processors.kernels.choice.edits_triton:edit_facts_triton",
)
"""Facts, as block_facts, of the edited logits, which are written to work [R, V] float32.

`is_listed`: work has what edit_listed wrote. masks [R, ceil(V / 32)] int32 forbid ids whose bit is 0.
"""
