"""`Suffixes`: where the last tokens of a text occurred before, and for how many tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from processors.base import in_slot
from processors.history import History
from processors.rows import Rows
from processors.upload import upload_ints

__all__ = ["Suffixes", "suffix_lengths"]

_FEW = 16  # new tokens of a slot up to which its lengths are extended rather than computed again


class Suffixes:
    """For each column of a slot's text, how many tokens before it equal the last tokens of the text.

    Lengths [S, L] int32 are computed once for a text. A new token then extends them: where the column holds
    the same token as the one that was appended, the length of the next column is one more than that of this
    column, elsewhere 0. That is one comparison of the history for a step, however repetitive the text is.

    The lengths follow from the history alone, so keeping them from one step to the next changes no result.
    """

    def __init__(self, device: torch.device) -> None:
        self._lengths = torch.zeros(8, 64, dtype=torch.int32, device=device)
        self._known: dict[int, int] = {}  # number of tokens that a slot's lengths are about

    def forget(self, slot: int) -> None:
        """Drop what is known of the slot; its text is another one from now on."""
        self._known.pop(slot, None)

    def copy(self, source: int, target: int) -> None:
        """Copy the lengths of one slot to another."""
        self.forget(target)
        if source in self._known:
            self._reserve(target + 1, 0)
            self._lengths[target] = self._lengths[source]
            self._known[target] = self._known[source]

    def gather(self, rows: Rows, ids: Tensor) -> Tensor:
        """Return the lengths for each row [R, W] int32, given the `ids` [R, W] of `rows.visible()`.

        Column j compares the tokens before j with the last tokens that the row sees; columns from the end of
        the row's text on hold nothing of use.
        """
        self._follow(rows.history, sorted(set(rows.host_slots)), ids.shape[1])
        found = self._lengths[:, : ids.shape[1]].index_select(0, rows.slots)
        first = rows.history.lengths[rows.slots, None]
        for offset in range(rows.drafts.shape[1]):
            longer = _extended(found, ids, ids.gather(1, first + offset))
            found = torch.where(rows.offsets[:, None] > offset, longer, found)
        return found

    def _follow(self, history: History, slots: Sequence[int], width: int) -> None:
        """Bring the lengths of these slots up to date."""
        self._reserve(max(slots) + 1, width)
        for slot in slots:
            behind = history.length(slot) - self._known.get(slot, -1)
            if slot not in self._known or not 0 <= behind <= _FEW:
                size = self._known[slot] = history.length(slot)
                found = suffix_lengths(history.tokens[slot, :size].tolist())
                self._lengths[slot, :size] = torch.tensor(found, dtype=torch.int32)
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
        with torch.inference_mode(False):  # else it could not be changed outside of that mode any more
            self._lengths = in_slot(self._lengths, slots - 1)
            if width > have:
                self._lengths = torch.nn.functional.pad(self._lengths, (0, max(width, 2 * have) - have))


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
