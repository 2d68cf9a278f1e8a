"""The kernel of patch_logits: the patch of each row, one program a row (grid (R,)).

A program sets the bits of allowed ids, marks edited ids, computes prefix sums over the words, tallies the
history's tokens by atomics on one word per edited id, and replaces each word by the id's new logit. Tallies
are integers and edits are float64 rounded to float32 as in the twin, so the bits are equal.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice import NUM_EDITS, Edit, Listed, Turn
from processors.kernels.choice.parts_triton import _of_ones
from processors.kernels.choice.tables import num_values, num_words
from processors.stages.shared import HIGHEST, LOWEST

__all__ = ["CHUNK", "OPTIONS", "patch_logits_triton"]

CHUNK = 1024  # tokens, entries or words per iteration
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF, _LOWEST, _HIGHEST = tl.constexpr(float("inf")), tl.constexpr(LOWEST), tl.constexpr(HIGHEST)
_CHUNK = tl.constexpr(CHUNK)
_EDITS, _SIZE = tl.constexpr(NUM_EDITS), tl.constexpr(int(Edit.SIZE))
_REPETITION, _FREQUENCY, _PRESENCE = (
    tl.constexpr(int(one)) for one in (Edit.REPETITION, Edit.FREQUENCY, Edit.PRESENCE)
)
_TURNS, _UNTIL = tl.constexpr(int(Edit.TURNS)), tl.constexpr(int(Edit.EARLY))
_NO_REPETITION, _NO_FREQUENCY, _NO_PRESENCE, _MASKED, _FIRST, _EARLY, _BIASED = (
    tl.constexpr(int(one)) for one in Listed
)
_, _BIAS, _REPEAT, _COUNT, _OCCUR = (tl.constexpr(int(one)) for one in Turn)
# A word of the tally: count for frequency, then flags for repetition, presence and bias.
_TIMES, _REPEATED, _PRESENT = tl.constexpr((1 << 28) - 1), tl.constexpr(1 << 28), tl.constexpr(1 << 29)
_ADDED = tl.constexpr(1 << 30)


@triton.jit
def _of_scope(column, field, length, prompt):  # type: ignore[no-untyped-def]
    """Mask of the history columns in a penalty's scope; `field` points to its penalty, scope and window."""
    scope, window = tl.load(field + 1), tl.load(field + 2)
    end = tl.where(scope == 0, prompt, length)
    last = tl.where(tl.load(field) != 0, end, 0)  # a penalty that is off has an empty scope
    start = tl.where(scope == 1, prompt, 0)
    is_near = column.to(tl.float64) >= end.to(tl.float64) - window
    return (column >= start) & (column < last) & is_near


@triton.jit
def _of_edited(x, changed, is_seen):  # type: ignore[no-untyped-def]
    """float32 of `changed`, clamped, where `is_seen` and x is finite; else x."""
    bounded = tl.where(changed != changed, changed, tl.minimum(tl.maximum(changed, _LOWEST), _HIGHEST))
    is_changed = is_seen & (x > -_INF) & (x < _INF)
    return tl.where(is_changed, bounded.to(tl.float32), x)


@triton.jit
def _of_turns(x, word, added, edits):  # type: ignore[no-untyped-def]
    """x after bias and penalties in the order of the row's chain, float32; `word` is the id's tally."""
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
    return new


@triton.jit
def _of_seen(tokens, drafts, draft_stride, column, length, total, width):  # type: ignore[no-untyped-def]
    """Ids at columns of the history (committed tokens, then drafts), and a mask of those within V."""
    ids = tl.load(tokens + column, mask=column < length, other=0)
    late = (column >= length) & (column < total)
    ids = tl.where(late, tl.load(drafts + (column - length) * draft_stride, mask=late, other=0), ids)
    return ids, (column < total) & (ids < width)


@triton.jit  # type: ignore[untyped-decorator]
def _of_bits(masks, edits, patch, width, HAS_MASKS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store the allowed bits by vocabulary size and mask, and zero the edited bits."""
    words, size = (width + 31) // 32, tl.load(edits + _SIZE)
    for start in range(0, words, _CHUNK):
        word = start + tl.arange(0, _CHUNK)
        is_here = word < words
        left = tl.minimum(tl.maximum(size - (word * 32).to(tl.float64), 0.0), 32.0).to(tl.int32)
        allowed = tl.where(left < 32, (1 << (left & 31)) - 1, -1)
        if HAS_MASKS:
            allowed = allowed & tl.load(masks + word, mask=is_here, other=0)
        tl.store(patch + word, allowed, mask=is_here)
        tl.store(patch + words + word, tl.zeros((_CHUNK,), tl.int32), mask=is_here)


@triton.jit  # type: ignore[untyped-decorator]
def _of_entries(lists, patch, words, entries, masking, HAS_VALUES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Clear the allowed bits of masked entries, and set the edited bits of biased ones."""
    for start in range(0, entries, _CHUNK):
        place = start + tl.arange(0, _CHUNK)
        entry = tl.load(lists + place, mask=place < entries, other=-1)
        ids, bits = (entry & 0x7FFFFFFF).to(tl.int32), (entry >> 32).to(tl.int32)
        at, bit = patch + ids // 32, 1 << (ids % 32)
        tl.atomic_and(at, ~bit, mask=(entry >= 0) & ((bits & masking) > 0))
        if HAS_VALUES:
            tl.atomic_or(at + words, bit, mask=(entry >= 0) & ((bits & _BIASED) > 0))


@triton.jit
def _of_places(patch, words):  # type: ignore[no-untyped-def]
    """Store the prefix sums of edited ids over the words; store and return their total."""
    total = tl.full((), 0, tl.int32)
    for start in range(0, words, _CHUNK):
        word = start + tl.arange(0, _CHUNK)
        edited = tl.load(patch + words + word, mask=word < words, other=0, cache_modifier=".cg")
        ones = _of_ones(edited)
        tl.store(patch + 2 * words + word, total + tl.cumsum(ones, 0) - ones, mask=word < words)
        total += tl.sum(ones, 0)
    tl.store(patch + 3 * words, total)
    return total


@triton.jit
def _of_place(patch, ids, words, is_here):  # type: ignore[no-untyped-def]
    """Index of each edited id in the values: its rank among the row's edited ids."""
    at = patch + words + ids // 32
    edited = tl.load(at, mask=is_here, other=0, cache_modifier=".cg")
    return tl.load(at + words, mask=is_here, other=0) + _of_ones(edited & ((1 << (ids % 32)) - 1))


@triton.jit  # type: ignore[untyped-decorator]
def _of_spared(lists, patch, tally, words, entries, HAS_VALUES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Clear the tally bits of ids that a penalty skips, and flag ids with a bias."""
    for start in range(0, entries, _CHUNK):
        place = start + tl.arange(0, _CHUNK)
        entry = tl.load(lists + place, mask=place < entries, other=-1)
        ids, bits = (entry & 0x7FFFFFFF).to(tl.int32), (entry >> 32).to(tl.int32)
        edited = tl.load(patch + words + ids // 32, mask=entry >= 0, other=0, cache_modifier=".cg")
        is_edited = ((edited >> (ids % 32)) & 1) > 0
        at = _of_place(patch, ids, words, is_edited)
        spared = tl.where((bits & _NO_REPETITION) > 0, _REPEATED, 0)
        spared |= tl.where((bits & _NO_FREQUENCY) > 0, _TIMES, 0)
        spared |= tl.where((bits & _NO_PRESENCE) > 0, _PRESENT, 0)
        tl.atomic_and(tally + at, ~spared, mask=is_edited)
        if HAS_VALUES:
            is_added = is_edited & ((bits & _BIASED) > 0)
            tl.atomic_or(tally + at, tl.full((_CHUNK,), _ADDED, tl.int32), mask=is_added)


@triton.jit
def _of_biased(logits, lists, values, edits, patch, tally, words, entries):  # type: ignore[no-untyped-def]
    """Replace the tally words of biased ids by their new logits."""
    for start in range(0, entries, _CHUNK):
        place = start + tl.arange(0, _CHUNK)
        entry = tl.load(lists + place, mask=place < entries, other=-1)
        ids = (entry & 0x7FFFFFFF).to(tl.int32)
        is_added = (entry >= 0) & (((entry >> 32) & _BIASED) > 0)
        at = tally + _of_place(patch, ids, words, is_added)
        word = tl.load(at, mask=is_added, other=0, cache_modifier=".cg")
        x = tl.load(logits + ids, mask=is_added, other=0.0).to(tl.float32)
        new = _of_turns(x, word, tl.load(values + place, mask=is_added, other=0.0), edits)
        tl.store(at, new.to(tl.int32, bitcast=True), mask=is_added)


@triton.jit  # type: ignore[untyped-decorator]
def _of_lists(  # type: ignore[no-untyped-def]
    logits, edits, lists, values, tokens, drafts, known, patch, length, prompt, total, width, entries,
    draft_stride, HAS_VALUES: tl.constexpr,
):  # fmt: skip
    """Mask ids by entries, and store the new logits of all ids that biases and penalties edit."""
    words, position = (width + 31) // 32, (total - prompt).to(tl.float64)
    tally = patch + 3 * words + 1
    is_early = position < tl.load(edits + _UNTIL)
    masking = _MASKED | tl.where(position == 0, _FIRST, 0) | tl.where(is_early, _EARLY, 0)
    _of_entries(lists, patch, words, entries, masking, HAS_VALUES)
    off = (tl.load(edits + _REPETITION) == 0) & (tl.load(edits + _FREQUENCY) == 0)
    end = tl.where(off & (tl.load(edits + _PRESENCE) == 0), 0, total)  # no penalty: no history
    for start in range(0, end, _CHUNK):
        column = start + tl.arange(0, _CHUNK)
        ids, is_known = _of_seen(tokens, drafts, draft_stride, column, length, total, width)
        is_known = is_known & (
            _of_scope(column, edits + _FREQUENCY, total, prompt)
            | _of_scope(column, edits + _REPETITION, total, prompt)
            | _of_scope(column, edits + _PRESENCE, total, prompt)
        )
        tl.atomic_or(patch + words + ids // 32, 1 << (ids % 32).to(tl.int32), mask=is_known)
    tl.debug_barrier()
    count = _of_places(patch, words)
    for start in range(0, count, _CHUNK):
        place = start + tl.arange(0, _CHUNK)
        tl.store(tally + place, tl.zeros((_CHUNK,), tl.int32), mask=place < count)
    tl.debug_barrier()
    for start in range(0, end, _CHUNK):
        column = start + tl.arange(0, _CHUNK)
        ids, is_known = _of_seen(tokens, drafts, draft_stride, column, length, total, width)
        is_counted = is_known & _of_scope(column, edits + _FREQUENCY, total, prompt)
        is_repeated = is_known & _of_scope(column, edits + _REPETITION, total, prompt)
        is_present = is_known & _of_scope(column, edits + _PRESENCE, total, prompt)
        is_known = is_counted | is_repeated | is_present
        ids = ids.to(tl.int32)
        at = _of_place(patch, ids, words, is_known)
        tl.store(known + at, ids, mask=is_known)
        tl.atomic_add(tally + at, tl.full((_CHUNK,), 1, tl.int32), mask=is_counted)
        tl.atomic_or(tally + at, tl.full((_CHUNK,), _REPEATED, tl.int32), mask=is_repeated)
        tl.atomic_or(tally + at, tl.full((_CHUNK,), _PRESENT, tl.int32), mask=is_present)
    tl.debug_barrier()
    _of_spared(lists, patch, tally, words, entries, HAS_VALUES)
    tl.debug_barrier()
    for start in range(0, count, _CHUNK):
        place = start + tl.arange(0, _CHUNK)
        word = tl.load(tally + place, mask=place < count, other=_ADDED, cache_modifier=".cg")
        is_mine = (word & _ADDED) == 0  # _of_biased stores biased ids
        ids = tl.load(known + place, mask=is_mine, other=0, cache_modifier=".cg")
        x = tl.load(logits + ids, mask=is_mine, other=0.0).to(tl.float32)
        new = _of_turns(x, word, tl.zeros((_CHUNK,), tl.float64), edits)
        tl.store(tally + place, new.to(tl.int32, bitcast=True), mask=is_mine)
    if HAS_VALUES:
        tl.debug_barrier()
        _of_biased(logits, lists, values, edits, patch, tally, words, entries)


# Values that change from step to step; a specialised kernel per value would only recompile.
_VARIED = ["capacity", "entries", "room", "size", "row_stride", "draft_stride"]


@triton.jit(do_not_specialize=_VARIED)  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    logits, edits, masks, lists, values, tokens, lengths, prompts, slots, drafts, offsets, patches, known,
    width, stride, masks_stride, capacity, entries, room, size, row_stride, draft_stride,
    HAS_MASKS: tl.constexpr, HAS_LISTS: tl.constexpr, HAS_VALUES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    patch, edits = patches + row * size, edits + row * _EDITS
    _of_bits(masks + row * masks_stride, edits, patch, width, HAS_MASKS)
    if HAS_LISTS:
        slot = tl.load(slots + row)
        length, prompt = tl.load(lengths + slot), tl.load(prompts + slot)
        tl.debug_barrier()
        _of_lists(
            logits + row * stride, edits, lists + row * entries, values + row * entries,
            tokens + slot * capacity, drafts + row * row_stride, known + row * room, patch, length, prompt,
            length + tl.load(offsets + row), width, entries, draft_stride, HAS_VALUES,
        )  # fmt: skip
    else:
        tl.store(patch + 3 * ((width + 31) // 32), 0)


def patch_logits_triton(
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
    """As patch_logits_torch."""
    (rows, width), device = logits.shape, logits.device
    room = num_values(width, lists, tokens, drafts)
    patches = torch.empty((rows, 3 * num_words(width) + 1 + room), dtype=torch.int32, device=device)
    known = torch.empty((rows, room), dtype=torch.int32, device=device)
    words = edits if masks is None else masks
    seen = [edits if one is None else one for one in (lists, values, tokens, lengths, prompts, slots, drafts)]
    _kernel[(rows,)](
        logits, edits, words, *seen, edits if offsets is None else offsets, patches, known, width,
        logits.stride(0), words.stride(0), 0 if tokens is None else tokens.shape[1],
        0 if lists is None else lists.shape[1], room, patches.shape[1],
        *((0, 0) if drafts is None else drafts.stride()),
        HAS_MASKS=masks is not None, HAS_LISTS=lists is not None, HAS_VALUES=values is not None, **OPTIONS,
    )  # fmt: skip
    return patches
