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
    "Turn",
    "edit_facts",
    "edit_facts_torch",
    "edit_listed",
    "edit_listed_torch",
]


class Edit(IntEnum):
    """Columns of edits [R, E] float64. A penalty of 0 is off; scopes are those of PenaltyParams by index."""

    SIZE = 0  # ids from here on are masked
    EARLY = 1  # number of output tokens from which ids that are listed as EARLY are allowed
    REPETITION = 2  # and its scope and window behind it
    FREQUENCY = 5
    PRESENCE = 8
    TURNS = 11  # four columns: which `Turn` comes first, second, ...


NUM_EDITS = 15


class Turn(IntEnum):
    """Edits of logits whose order is that of the chain: logit bias and penalties. NONE is no edit."""

    NONE = 0
    BIAS = 1
    REPETITION = 2
    FREQUENCY = 3
    PRESENCE = 4


class Listed(IntEnum):
    """Bits 32 and up of an entry in the lists [R, N] int64, whose lower bits are an id; -1 for no entry."""

    NO_REPETITION = 1  # the penalty spares the id
    NO_FREQUENCY = 2
    NO_PRESENCE = 4
    MASKED = 8
    FIRST = 16  # masked for the first output token
    EARLY = 32  # masked until there are enough output tokens
    BIASED = 64  # by its value; an id has one such entry at most


def edit_listed_torch(
    logits: Tensor,
    edits: Tensor,
    lists: Tensor,
    values: Tensor | None,
    tokens: Tensor,
    lengths: Tensor,
    prompts: Tensor,
    slots: Tensor,
    drafts: Tensor,
    offsets: Tensor,
    work: Tensor,
) -> None:
    """As edit_listed, in PyTorch, row by row."""
    for row, slot in enumerate(slots.tolist()):
        prompt, entries = int(prompts[slot]), lists[row] >= 0
        seen = torch.cat([tokens[slot, : int(lengths[slot])], drafts[row, : int(offsets[row])]])
        added = None if values is None else values[row][entries]
        new, is_edited = _edited(logits[row], edits[row], lists[row][entries], added, seen, prompt)
        work[row] = torch.where(is_edited, torch.where(new == 0, -0.0, new), 0).float()


def _edited(
    logits: Tensor, edits: Tensor, entries: Tensor, values: Tensor | None, seen: Tensor, prompt: int
) -> tuple[Tensor, Tensor]:
    """Return the logits [V] of a row that sees these tokens [L], and which of them are edited."""
    old, ids, bits = logits.double(), entries & 0xFFFFFFFF, entries >> 32
    new, is_edited = old.clone(), torch.zeros_like(old, dtype=torch.bool)
    for turn in edits[Edit.TURNS :].tolist():
        if turn == Turn.BIAS and values is not None:
            added, mine = torch.zeros_like(old), ids[(bits & Listed.BIASED) > 0]
            added[mine] = values[(bits & Listed.BIASED) > 0]
            touched, changed = torch.zeros_like(is_edited), new + added
            touched[mine] = True
            new = torch.where((added == -torch.inf) & (new < torch.inf), -torch.inf, new)
        elif turn > Turn.BIAS:
            number = int(turn) - Turn.REPETITION
            field = (Edit.REPETITION, Edit.FREQUENCY, Edit.PRESENCE)[number]
            counts = _counts(edits[field : field + 3], seen, prompt, len(old))
            counts[ids[(bits & (1 << number)) > 0]] = 0
            touched, changed = counts > 0, _penalised(int(turn), new, counts, float(edits[field]))
        else:
            continue
        is_edited |= touched
        changed = changed.clamp(LOWEST, HIGHEST).float().double()
        new = torch.where(touched & ~new.isinf(), changed, new)
    position, masked = len(seen) - prompt, (bits & Listed.MASKED) > 0
    masked |= ((bits & Listed.FIRST) > 0) & (position == 0)
    masked |= ((bits & Listed.EARLY) > 0) & (position < edits[Edit.EARLY])
    is_edited[ids[masked]] = True
    new[ids[masked]] = torch.where(old[ids[masked]] < torch.inf, -torch.inf, old[ids[masked]])
    return new, is_edited


def _counts(values: Tensor, seen: Tensor, prompt: int, width: int) -> Tensor:
    """Return how often each id [V] is in the scope of a penalty, given its value, scope and window [3]."""
    penalty, scope, window = values.tolist()
    end = prompt if scope == 0 else len(seen)
    start = max(prompt if scope == 1 else 0, end - window)
    found = seen[int(start) : end]
    counts = found[found < width].bincount(minlength=width)
    return counts if penalty else torch.zeros_like(counts)


def _penalised(turn: int, x: Tensor, counts: Tensor, penalty: float) -> Tensor:
    if turn == Turn.REPETITION:
        return torch.where(x > 0, x / max(penalty, 1e-300), x * penalty)
    return x - penalty * (counts.double() if turn == Turn.FREQUENCY else 1)


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
    "edit_listed(Tensor logits, Tensor edits, Tensor lists, Tensor? values, Tensor tokens, Tensor lengths, "
    "Tensor prompts, Tensor slots, Tensor drafts, Tensor offsets, Tensor(a!) work) -> ()",
    edit_listed_torch,
    "processors.kernels.choice.edits_triton:edit_listed_triton",
)
"""Write the logits that biases, penalties and lists of ids change to work [R, V] float32, all +0 before.

values [R, N] float64 are what entries add, None without any. tokens [S, L], lengths [S] and prompts [S] are
those of History, slots, offsets [R] and drafts [R, K] those of Rows. What is neither finite nor -inf is not
masked, so that a fault of the model is seen.
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
