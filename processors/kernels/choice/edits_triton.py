"""Masks and penalties of a chain with Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.edits import NUM_EDITS, Edit, Listed, Turn
from processors.kernels.choice.facts_triton import EACH, _of_facts
from processors.kernels.choice.parts import Control
from processors.sampler import BLOCK
from processors.stages.tokens import HIGHEST, LOWEST

__all__ = ["CHUNK", "OPTIONS", "edit_facts_triton", "edit_listed_triton"]

CHUNK = 1024  # tokens of the history that are looked at together
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF, _LOWEST, _HIGHEST = tl.constexpr(float("inf")), tl.constexpr(LOWEST), tl.constexpr(HIGHEST)
_BLOCK, _EACH, _CHUNK = tl.constexpr(BLOCK), tl.constexpr(EACH), tl.constexpr(CHUNK)
_CONTROLS, _HEAT = tl.constexpr(len(Control)), tl.constexpr(int(Control.HEAT_CUT))
_EDITS, _SIZE = tl.constexpr(NUM_EDITS), tl.constexpr(int(Edit.SIZE))
_REPETITION, _FREQUENCY, _PRESENCE = (
    tl.constexpr(int(one)) for one in (Edit.REPETITION, Edit.FREQUENCY, Edit.PRESENCE)
)
_TURNS, _UNTIL = tl.constexpr(int(Edit.TURNS)), tl.constexpr(int(Edit.EARLY))
_NO_REPETITION, _NO_FREQUENCY, _NO_PRESENCE, _MASKED, _FIRST, _EARLY, _BIASED = (
    tl.constexpr(int(one)) for one in Listed
)
_, _BIAS, _REPEAT, _COUNT, _OCCUR = (tl.constexpr(int(one)) for one in Turn)
# In a word of the tally: how often frequency counts the id, whether the other two see it, and a bias.
_TIMES, _REPEATED, _PRESENT = tl.constexpr((1 << 28) - 1), tl.constexpr(1 << 28), tl.constexpr(1 << 29)
_ADDED = tl.constexpr(1 << 30)


@triton.jit
def _of_scope(column, field, length, prompt):  # type: ignore[no-untyped-def]
    """Which columns of the history a penalty sees; `field` points to its penalty, scope and window."""
    scope, window = tl.load(field + 1), tl.load(field + 2)
    end = tl.where(scope == 0, prompt, length)
    last = tl.where(tl.load(field) != 0, end, 0)  # nothing is seen where it is off
    start = tl.where(scope == 1, prompt, 0)
    is_near = column.to(tl.float64) >= end.to(tl.float64) - window
    return (column >= start) & (column < last) & is_near


@triton.jit
def _of_edited(x, changed, is_seen):  # type: ignore[no-untyped-def]
    """float32 of what a penalty makes of x where it sees the id; infinite x stays."""
    bounded = tl.where(changed != changed, changed, tl.minimum(tl.maximum(changed, _LOWEST), _HIGHEST))
    is_changed = is_seen & (x > -_INF) & (x < _INF)
    return tl.where(is_changed, bounded.to(tl.float32), x)


@triton.jit
def _of_turns(x, word, added, edits):  # type: ignore[no-untyped-def]
    """float32 of what bias and penalties make of x, in the order of the row; `word` is of the tally."""
    new, times = x, word & _TIMES
    for turn in range(4):
        kind = tl.load(edits + _TURNS + turn)
        old = new.to(tl.float64)
        if kind == _BIAS:
            is_added = (word & _ADDED) > 0
            banned = is_added & (added == -_INF) & (new < _INF)
            new = tl.where(banned, -_INF, _of_edited(new, old + added, is_added))
        elif kind == _REPEAT:
            penalty = tl.load(edits + _REPETITION)
            divided = old / tl.where(penalty != 0, penalty, 1.0)
            new = _of_edited(new, tl.where(old > 0, divided, old * penalty), (word & _REPEATED) > 0)
        elif kind == _COUNT:
            lower = old - tl.load(edits + _FREQUENCY) * times.to(tl.float64)
            new = _of_edited(new, lower, times > 0)
        elif kind == _OCCUR:
            new = _of_edited(new, old - tl.load(edits + _PRESENCE), (word & _PRESENT) > 0)
    return tl.where(new == 0, -0.0, new)


@triton.jit
def _of_seen(tokens, drafts, draft_stride, column, length, total, width):  # type: ignore[no-untyped-def]
    """The ids at these columns: committed tokens, then drafts; and which of them have a logit."""
    ids = tl.load(tokens + column, mask=column < length, other=0)
    late = (column >= length) & (column < total)
    ids = tl.where(late, tl.load(drafts + (column - length) * draft_stride, mask=late, other=0), ids)
    return ids, (column < total) & (ids < width)


# They differ from step to step, where nothing is gained by a kernel for each value.
_VARIED = ["capacity", "entries", "num_drafts", "row_stride", "draft_stride"]


@triton.jit(do_not_specialize=_VARIED)  # type: ignore[untyped-decorator]
def _listed(  # type: ignore[no-untyped-def]
    logits, edits, lists, values, tokens, lengths, prompts, slots, drafts, offsets, work, news, width, stride,
    capacity, entries, num_drafts, row_stride, draft_stride, HAS_VALUES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row)
    length, prompt = tl.load(lengths + slot), tl.load(prompts + slot)
    total = length + tl.load(offsets + row)
    edits, lists, logits = edits + row * _EDITS, lists + row * entries, logits + row * stride
    words = (work + row * width).to(tl.pointer_type(tl.int32), bitcast=True)
    news, work = news + row * (capacity + num_drafts), work + row * width
    tokens, drafts, values = tokens + slot * capacity, drafts + row * row_stride, values + row * entries
    for start in range(0, total, _CHUNK):
        column = start + tl.arange(0, _CHUNK)
        ids, is_known = _of_seen(tokens, drafts, draft_stride, column, length, total, width)
        is_counted = is_known & _of_scope(column, edits + _FREQUENCY, total, prompt)
        tl.atomic_add(words + ids, tl.full((_CHUNK,), 1, tl.int32), mask=is_counted)
        is_repeated = is_known & _of_scope(column, edits + _REPETITION, total, prompt)
        tl.atomic_or(words + ids, tl.full((_CHUNK,), _REPEATED, tl.int32), mask=is_repeated)
        is_present = is_known & _of_scope(column, edits + _PRESENCE, total, prompt)
        tl.atomic_or(words + ids, tl.full((_CHUNK,), _PRESENT, tl.int32), mask=is_present)
    tl.debug_barrier()
    for start in range(0, entries, _CHUNK):
        place = start + tl.arange(0, _CHUNK)
        entry = tl.load(lists + place, mask=place < entries, other=-1)
        bits = (entry >> 32).to(tl.int32)
        spared = tl.where((bits & _NO_REPETITION) > 0, _REPEATED, 0)
        spared |= tl.where((bits & _NO_FREQUENCY) > 0, _TIMES, 0)
        spared |= tl.where((bits & _NO_PRESENCE) > 0, _PRESENT, 0)
        tl.atomic_and(words + (entry & 0x7FFFFFFF), ~spared, mask=entry >= 0)
        if HAS_VALUES:
            is_added = (entry >= 0) & ((bits & _BIASED) > 0)
            tl.atomic_or(words + (entry & 0x7FFFFFFF), tl.full((_CHUNK,), _ADDED, tl.int32), mask=is_added)
    tl.debug_barrier()
    # All new values are computed before the first is written over its word, as ids occur several times.
    for start in range(0, total, _CHUNK):
        column = start + tl.arange(0, _CHUNK)
        ids, is_known = _of_seen(tokens, drafts, draft_stride, column, length, total, width)
        x = tl.load(logits + ids, mask=is_known, other=0.0).to(tl.float32)
        word = tl.load(words + ids, mask=is_known, other=0, cache_modifier=".cg")
        new = _of_turns(x, word & ~_ADDED, tl.zeros((_CHUNK,), tl.float64), edits)
        # What has a bias is written with its entry.
        tl.store(news + column, tl.where((word == 0) | ((word & _ADDED) > 0), 0.0, new), mask=is_known)
    tl.debug_barrier()
    for start in range(0, total, _CHUNK):
        column = start + tl.arange(0, _CHUNK)
        ids, is_known = _of_seen(tokens, drafts, draft_stride, column, length, total, width)
        new = tl.load(news + column, mask=is_known, other=0.0)
        tl.store(work + ids, new, mask=is_known & (new.to(tl.int32, bitcast=True) != 0))
    tl.debug_barrier()
    if HAS_VALUES:
        for start in range(0, entries, _CHUNK):
            place = start + tl.arange(0, _CHUNK)
            entry = tl.load(lists + place, mask=place < entries, other=-1)
            ids = entry & 0x7FFFFFFF
            is_added = (entry >= 0) & (((entry >> 32) & _BIASED) > 0)
            x = tl.load(logits + ids, mask=is_added, other=0.0).to(tl.float32)
            word = tl.load(words + ids, mask=is_added, other=0, cache_modifier=".cg")
            added = tl.load(values + place, mask=is_added, other=0.0)
            tl.store(work + ids, _of_turns(x, word, added, edits), mask=is_added)
        tl.debug_barrier()
    position = (total - prompt).to(tl.float64)
    is_early = position < tl.load(edits + _UNTIL)
    masking = _MASKED | tl.where(position == 0, _FIRST, 0) | tl.where(is_early, _EARLY, 0)
    for start in range(0, entries, _CHUNK):
        place = start + tl.arange(0, _CHUNK)
        entry = tl.load(lists + place, mask=place < entries, other=-1)
        ids = entry & 0x7FFFFFFF
        is_masked = (entry >= 0) & (((entry >> 32).to(tl.int32) & masking) > 0)
        x = tl.load(logits + ids, mask=is_masked, other=0.0).to(tl.float32)
        tl.store(work + ids, tl.where(x < _INF, -_INF, x), mask=is_masked)


@triton.jit  # type: ignore[untyped-decorator]
def _facts(  # type: ignore[no-untyped-def]
    logits, controls, edits, masks, work, facts, width, stride, masks_stride, blocks,
    HAS_MASKS: tl.constexpr, IS_LISTED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * _EACH + tl.arange(0, _EACH)
    ids = block[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
    is_here = ids < width
    x = tl.load(logits + row * stride + ids, mask=is_here, other=-_INF).to(tl.float32)
    if IS_LISTED:
        new = tl.load(work + row * width + ids, mask=is_here, other=0.0)
        x = tl.where(new.to(tl.int32, bitcast=True) == 0, x, new)
    is_allowed = ids < tl.load(edits + row * _EDITS + _SIZE)
    if HAS_MASKS:
        word = tl.load(masks + row * masks_stride + ids // 32, mask=is_here, other=-1)
        is_allowed = is_allowed & (((word >> (ids % 32)) & 1) > 0)
    x = tl.where((x < _INF) & (is_allowed == 0), -_INF, x)
    tl.store(work + row * width + ids, x, mask=is_here)
    top, low, total, count = _of_facts(x, tl.load(controls + row * _CONTROLS + _HEAT).to(tl.float32))
    at, is_inside = facts + row * 4 * blocks + block, block < blocks
    tl.store(at, top, mask=is_inside)
    tl.store(at + blocks, low, mask=is_inside)
    tl.store(at + 2 * blocks, total, mask=is_inside)
    tl.store(at + 3 * blocks, count, mask=is_inside)


def edit_listed_triton(
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
    """As edit_listed_torch."""
    rows, width = logits.shape
    capacity, num_drafts = tokens.shape[1], drafts.shape[1]
    news = torch.empty((rows, capacity + num_drafts), dtype=torch.float32, device=logits.device)
    _listed[(rows,)](
        logits, edits, lists, edits if values is None else values, tokens, lengths, prompts, slots, drafts,
        offsets, work, news, width, logits.stride(0), capacity, lists.shape[1], num_drafts, *drafts.stride(),
        HAS_VALUES=values is not None, **OPTIONS,
    )  # fmt: skip


def edit_facts_triton(
    logits: Tensor, controls: Tensor, edits: Tensor, masks: Tensor | None, work: Tensor, is_listed: bool
) -> Tensor:
    """As edit_facts_torch."""
    rows, width = logits.shape
    blocks = triton.cdiv(width, BLOCK)
    facts = torch.empty((rows, 4, blocks), dtype=torch.float32, device=logits.device)
    words = edits if masks is None else masks
    _facts[(rows, triton.cdiv(blocks, EACH))](
        logits, controls, edits, words, work, facts, width, logits.stride(0), words.stride(0), blocks,
        HAS_MASKS=masks is not None, IS_LISTED=is_listed, **OPTIONS,
    )  # fmt: skip
    return facts
