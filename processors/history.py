"""`History`: the committed tokens of every slot, as tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from processors.upload import upload

__all__ = ["History"]


class History:
    """Prompt, output and seed of each slot.

    tokens [S, L], lengths [S], prompt_lengths [S] and seeds [S] are int64 on `device`. Lengths and seeds are
    mirrored on the host, so that reading them needs no device synchronisation. `forced` [S, L] bool marks
    forced tokens; None as long as there are none.
    """

    def __init__(self, device: torch.device | str = "cpu", *, slots: int = 8, length: int = 256) -> None:
        self.device = torch.device(device)
        self.tokens = torch.zeros(slots, length, dtype=torch.int64, device=self.device)
        self.lengths = torch.zeros(slots, dtype=torch.int64, device=self.device)
        self.prompt_lengths = torch.zeros_like(self.lengths)
        self.seeds = torch.zeros_like(self.lengths)
        self.forced: Tensor | None = None
        self._host_lengths, self._host_seeds = [0] * slots, [0] * slots

    def length(self, slot: int) -> int:
        """Return the number of committed tokens of the slot, prompt included."""
        return self._host_lengths[slot]

    def seed(self, slot: int) -> int:
        """Return the seed of the slot's draws as int64."""
        return self._host_seeds[slot]

    def admit(self, slot: int, prompt: Sequence[int], *, seed: int = 0) -> None:
        """Reset a slot to a prompt; `seed` is the request's 64-bit seed."""
        self._reserve(slot + 1, len(prompt))
        self.tokens[slot, : len(prompt)] = upload(prompt, self.device, torch.int64)
        self.prompt_lengths[slot] = len(prompt)
        self._set_seed(slot, seed)
        if self.forced is not None:
            self.forced[slot] = False
        self._set_length(slot, len(prompt))

    def append(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        forced: Sequence[Sequence[bool]] = (),
    ) -> None:
        """Commit tokens to the slots: one list per slot, each slot at most once.

        `forced` marks the forced tokens of each slot; an empty list means none.
        """
        flat = [token for run in tokens for token in run]
        if not flat:
            return
        starts = [self._host_lengths[slot] for slot in slots]
        self._reserve(0, max(start + len(run) for start, run in zip(starts, tokens, strict=True)))
        rows = [slot for slot, run in zip(slots, tokens, strict=True) for _ in run]
        columns = [start + i for start, run in zip(starts, tokens, strict=True) for i in range(len(run))]
        cells = upload([rows, columns, flat], self.device, torch.int64)
        self.tokens.index_put_((cells[0], cells[1]), cells[2])
        if self.forced is not None or any(map(any, forced)):
            pairs = zip(tokens, forced or [()] * len(tokens), strict=True)
            self._mark([flag for run, flags in pairs for flag in flags or [False] * len(run)], cells)
        self.lengths.index_add_(0, cells[0], torch.ones_like(cells[0]))
        for slot, run in zip(slots, tokens, strict=True):
            self._host_lengths[slot] += len(run)

    def _mark(self, flags: list[bool], cells: Tensor) -> None:
        if self.forced is None:
            self.forced = torch.zeros_like(self.tokens, dtype=torch.bool)
        marks = upload(flags, self.device)
        self.forced.index_put_((cells[0], cells[1]), marks)

    def fork(self, source: int, target: int, *, seed: int) -> None:
        """Copy a slot; the copy draws with its own `seed`."""
        self._reserve(target + 1, 0)
        self.tokens[target] = self.tokens[source]
        if self.forced is not None:
            self.forced[target] = self.forced[source]
        self.prompt_lengths[target] = self.prompt_lengths[source]
        self._set_seed(target, seed)
        self._set_length(target, self._host_lengths[source])

    def release(self, slot: int) -> None:
        """Empty the slot."""
        self.prompt_lengths[slot] = 0
        self._set_length(slot, 0)

    def _set_length(self, slot: int, length: int) -> None:
        self.lengths[slot] = length
        self._host_lengths[slot] = length

    def _set_seed(self, slot: int, seed: int) -> None:
        self.seeds[slot] = seed
        self._host_seeds[slot] = seed

    def _reserve(self, slots: int, length: int) -> None:
        """Grow by doubling to at least this many slots and columns."""
        have_slots, have_length = self.tokens.shape
        if slots <= have_slots and length <= have_length:
            return
        new_slots = have_slots if slots <= have_slots else max(slots, 2 * have_slots)
        new_length = have_length if length <= have_length else max(length, 2 * have_length)
        self.tokens = _grown(self.tokens, new_slots, new_length)
        if self.forced is not None:
            self.forced = _grown(self.forced, new_slots, new_length)
        extra = new_slots - have_slots
        self.lengths, self.prompt_lengths, self.seeds = (
            torch.nn.functional.pad(column, (0, extra))
            for column in (self.lengths, self.prompt_lengths, self.seeds)
        )
        self._host_lengths += [0] * extra
        self._host_seeds += [0] * extra


def _grown(tokens: Tensor, slots: int, length: int) -> Tensor:
    grown = tokens.new_zeros(slots, length)
    grown[: tokens.shape[0], : tokens.shape[1]] = tokens
    return grown
