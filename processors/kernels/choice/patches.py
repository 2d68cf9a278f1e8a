"""Patches: the effect of masks, biases and penalties on logits, without a copy of the logits.

A patch of a row is int32 [P], with W = ceil(V / 32) words of 32 ids each and N values:

    allowed [W]  bit i of word w is 1 where id 32 w + i is allowed
    edited [W]   likewise, where a bias or a penalty gives the id a new logit
    before [W]   the number of edited ids in the preceding words: prefix sums of the words' bit counts
    count [1]    the number of edited ids
    values [N]   the new logits, float32, in ascending order of id

The kernels read the model's logits unchanged, and apply the patch in registers. A patch takes 12 W bytes, a
tenth of a row of float32, and the values. New logits are float64, rounded to float32 after each edit as the
stages do, so kernel and twin have equal bits.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from processors.kernels.bitmask import blocked_bits
from processors.kernels.choice.edits import Edit, Listed, Turn
from processors.kernels.operation import operation
from processors.stages.tokens import HIGHEST, LOWEST

__all__ = ["num_values", "num_words", "patch_logits", "patch_logits_torch", "patched"]


def num_words(width: int) -> int:
    """Return the number of 32-bit words W of a mask over `width` ids."""
    return -(-width // 32)


def num_values(width: int, lists: Tensor | None, tokens: Tensor | None, drafts: Tensor | None) -> int:
    """Return the capacity N for values in a patch: one for each listed id and each token of a history."""
    if lists is None or tokens is None or drafts is None:
        return 0
    return min(width, lists.shape[1] + tokens.shape[1] + drafts.shape[1])


def patch_logits_torch(
    logits: Tensor,
    edits: Tensor,
    masks: Tensor | None = None,
    lists: Tensor | None = None,
    values: Tensor | None = None,
    tokens: Tensor | None = None,
    lengths: Tensor | None = None,
    prompts: Tensor | None = None,
    slots: Tensor | None = None,
    drafts: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """As patch_logits, in PyTorch, row by row."""
    rows, width = logits.shape
    is_allowed = torch.arange(width, device=logits.device) < edits[:, Edit.SIZE, None]
    if masks is not None:
        is_allowed &= _flags(masks, width)
    is_edited = torch.zeros_like(is_allowed)
    found = torch.zeros(rows, num_values(width, lists, tokens, drafts), device=logits.device)
    if lists is not None:
        named = (one for one in (tokens, lengths, prompts, slots, drafts, offsets) if one is not None)
        history, ends, begins, own, late, more = named
        for row, slot in enumerate(own.tolist()):
            prompt, entries = int(begins[slot]), lists[row] >= 0
            seen = torch.cat([history[slot, : int(ends[slot])], late[row, : int(more[row])]])
            added = None if values is None else values[row][entries]
            new, mine = _edited(logits[row], edits[row], lists[row][entries], added, seen, prompt)
            is_edited[row] = mine
            found[row, : int(mine.sum())] = new[mine].float()
            is_allowed[row, _masked(edits[row], lists[row][entries], len(seen) - prompt)] = False
    words = _words(is_edited)
    counts = is_edited.sum(1, keepdim=True, dtype=torch.int32)
    sums = pad(is_edited, (0, -width % 32)).view(rows, -1, 32).sum(2).cumsum(1)
    before = pad(sums, (1, 0))[:, :-1].int()
    return torch.cat([_words(is_allowed), words, before, counts, found.view(torch.int32)], 1)


def patched(logits: Tensor, patches: Tensor | None) -> Tensor:
    """Return the logits [R, V] with their patches [R, P], float32; the same tensor without patches."""
    if patches is None:
        return logits
    width, words = logits.shape[1], num_words(logits.shape[1])
    is_allowed, is_edited = (_flags(patches[:, at : at + words], width) for at in (0, words))
    values = patches[:, 3 * words + 1 :].contiguous().view(torch.float32)
    new = logits.float()
    if values.shape[1]:
        place = (is_edited.cumsum(1) - 1).clamp(0, values.shape[1] - 1)
        new = torch.where(is_edited, values.gather(1, place), new)
    return torch.where((new < torch.inf) & ~is_allowed, -torch.inf, new)


def _flags(words: Tensor, width: int) -> Tensor:
    """Return the bits of words [R, W] as bools [R, width]."""
    octets = words.contiguous().view(torch.uint8).flatten().to(torch.int32)
    blocked = blocked_bits(words.device).index_select(0, octets).view(torch.bool)
    return ~blocked.view(len(words), -1)[:, :width]


def _words(flags: Tensor) -> Tensor:
    """Return bools [R, V] as bits of words [R, W] int32."""
    padded = pad(flags, (0, -flags.shape[1] % 32)).view(len(flags), -1, 32)
    return (padded.long() << torch.arange(32, device=flags.device)).sum(2).int()


def _masked(edits: Tensor, entries: Tensor, position: int) -> Tensor:
    """Return the ids that entries [N] mask at a position of the output."""
    bits = entries >> 32
    masked = (bits & Listed.MASKED) > 0
    masked |= ((bits & Listed.FIRST) > 0) & (position == 0)
    masked |= ((bits & Listed.EARLY) > 0) & (position < edits[Edit.EARLY])
    return (entries & 0xFFFFFFFF)[masked]


def _edited(
    logits: Tensor, edits: Tensor, entries: Tensor, values: Tensor | None, seen: Tensor, prompt: int
) -> tuple[Tensor, Tensor]:
    """Return the edited logits [V] float64 of a row with history `seen` [L], and which are edited [V]."""
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
    return new, is_edited


def _counts(values: Tensor, seen: Tensor, prompt: int, width: int) -> Tensor:
    """Return the count [V] of each id within a penalty's scope; `values` [3]: penalty, scope, window."""
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


patch_logits = operation(
    "patch_logits(Tensor logits, Tensor edits, Tensor? masks=None, Tensor? lists=None, Tensor? values=None, "
    "Tensor? tokens=None, Tensor? lengths=None, Tensor? prompts=None, Tensor? slots=None, "
    "Tensor? drafts=None, Tensor? offsets=None) -> Tensor",
    patch_logits_torch,
    "processors.kernels.choice.patches_triton:patch_logits_triton",
)
"""Return the patches [R, P] int32 of logits [R, V] for their edits [R, E].

masks [R, W] int32 forbid the ids whose bit is 0. lists [R, N] int64 are entries (see `Listed`); values [R, N]
float64 are their logit biases, None if no entry has one. tokens [S, L], lengths [S] and prompts [S] are those
of History; slots and offsets [R] and drafts [R, K] are those of Rows. A logit of NaN or +inf is never masked,
so that a fault of the model is detected.
"""
