"""`Suffixes`: how many tokens before each position equal the last tokens of the text."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from processors.columns import in_slot
from processors.history import History
from processors.rows import Rows
from processors.upload import upload, upload_ints

__all__ = ["Suffixes", "suffix_lengths"]


class Suffixes:
    """For each column of a slot's text: the number of tokens before it that equal the last tokens.

    Lengths [S, L] int32 are computed once from the whole text, on the host. Each appended token then updates
    them: length[j + 1] = length[j] + 1 if column j holds the appended token, else 0. A step thus costs one
    comparison over the history, however repetitive the text is.

    The lengths depend on the history alone, so caching them between steps changes no result.
    """

    def __init__(self, device: torch.device) -> None:
        self._lengths = torch.zeros(8, 64, dtype=torch.int32, device=device)
        self._known: dict[int, int] = {}  # number of tokens that a slot's lengths cover
        self._texts: dict[int, list[int]] = {}  # texts whose lengths were not requested yet

    def admit(self, slot: int, prompt: Sequence[int]) -> None:
        """Begin with the prompt of a request."""
        self.release(slot)
        self._texts[slot] = list(prompt)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Advance the slot; once its lengths are computed, tokens are read from the history instead."""
        if slot in self._texts:
            self._texts[slot] += tokens

    def release(self, slot: int) -> None:
        """Drop the slot."""
        self._known.pop(slot, None)
        self._texts.pop(slot, None)

    def copy(self, source: int, target: int) -> None:
        """Copy one slot to another."""
        self.release(target)
        if source in self._texts:
            self._texts[target] = list(self._texts[source])
        elif source in self._known:
            self._reserve(target + 1, 0)
            self._lengths[target] = self._lengths[source]
            self._known[target] = self._known[source]

    def gather(self, rows: Rows, ids: Tensor) -> Tensor:
        """Return the lengths for each row [R, W] int32, given the `ids` [R, W] of `rows.visible()`.

        Column j compares the tokens before j with the last tokens that the row sees; columns past the row's
        text are undefined.
        """
        slots = sorted(set(rows.host_slots))
        self._follow(rows.history, slots, ids.shape[1])
        known = self._lengths[:, : ids.shape[1]]
        if not rows.drafts.shape[1]:
            return known.index_select(0, rows.slots)
        return _with_drafts(known, rows, slots, ids)

    def _follow(self, history: History, slots: Sequence[int], width: int) -> None:
        """Extend the lengths of these slots by the tokens committed since the last call."""
        self._reserve(max(slots) + 1, width)
        for slot in slots:
            size = history.length(slot)
            if self._known.get(slot, size + 1) > size:  # no lengths yet, or the text has been truncated
                text = self._texts.pop(slot, None)
                if text is None or len(text) > size:
                    text = history.tokens[slot, :size].tolist()
                found = upload(suffix_lengths(text), history.device, torch.int32)
                self._lengths[slot, : len(text)], self._known[slot] = found, len(text)
        while late := [slot for slot in slots if self._known[slot] < history.length(slot)]:
            known = [self._known[slot] for slot in late]
            index, most = upload_ints(late, history.device), max(known) + 1
            ids = history.tokens[:, :most].index_select(0, index)
            old = self._lengths[:, :most].index_select(0, index)
            last = ids.gather(1, upload_ints(known, history.device)[:, None])
            self._lengths[:, :most].index_copy_(0, index, _extended(old, ids, last))
            self._known.update((slot, size + 1) for slot, size in zip(late, known, strict=True))

    def _reserve(self, slots: int, width: int) -> None:
        """Grow by doubling to at least this many slots and columns."""
        have = self._lengths.shape[1]
        with torch.inference_mode(False):  # else it could not be changed outside of that mode
            self._lengths = in_slot(self._lengths, slots - 1)
            if width > have:
                self._lengths = torch.nn.functional.pad(self._lengths, (0, max(width, 2 * have) - have))


def _with_drafts(known: Tensor, rows: Rows, slots: Sequence[int], ids: Tensor) -> Tensor:
    """Return the lengths by row [R, W]: those of the slots [S, W], extended by the drafts that the row sees.

    Consecutive rows of a request differ by one draft, so each is extended from the row before.
    """
    offsets = [len(drafts) for drafts in rows.host_drafts]
    some_row = {slot: row for row, slot in enumerate(rows.host_slots)}
    place_of = {slot: place for place, slot in enumerate(slots)}
    index = upload_ints(slots, ids.device)
    ids = ids.index_select(0, upload_ints([some_row[slot] for slot in slots], ids.device))
    state, first = known.index_select(0, index), rows.history.lengths[index, None]
    found = state.new_zeros(len(rows), ids.shape[1])
    for offset in range(max(offsets) + 1):
        at = [row for row, count in enumerate(offsets) if count == offset]
        where = upload_ints([place_of[rows.host_slots[row]] for row in at], ids.device)
        found.index_copy_(0, upload_ints(at, ids.device), state.index_select(0, where))
        if offset < max(offsets):
            state = _extended(state, ids, ids.gather(1, first + offset))
    return found


def _extended(lengths: Tensor, ids: Tensor, last: Tensor) -> Tensor:
    """Return the lengths [A, W] after the token `last` [A, 1] was appended to the texts `ids` [A, W]."""
    longer = torch.where(ids[:, :-1] == last, lengths[:, :-1] + 1, 0)
    return torch.nn.functional.pad(longer, (1, 0))


def suffix_lengths(tokens: Sequence[int]) -> list[int]:
    """Return for each index j how many tokens before j equal the last tokens, in linear time.

    Z-algorithm on the reversed text (Gusfield 1997, Algorithms on Strings, Trees and Sequences, 1.3).
    """
    text = tokens[::-1]
    size, left, right = len(text), 0, 0
    found = [0] * size
    for start in range(1, size):
        same = min(right - start, found[start - left]) if start < right else 0
        while start + same < size and text[same] == text[start + same]:
            same += 1
        if start + same > right:
            left, right = start, start + same
        found[start] = same
    return [0, *found[:0:-1]][:size]
