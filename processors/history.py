"""`History`: the committed tokens of every slot, as tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from processors.base import grown
from processors.graphs import upload, upload_ints

_MOST_LATE = 4096  # tokens buffered on the host before they are written to the device
_MOST_FACTS = 16  # sets of slots whose facts are cached


class SlotFacts(NamedTuple):
    """Values of rows without drafts, which are constant while the requests run: [R] int64; `drafts` [R, 0].

    The tensors are shared by steps and must not be changed in place.
    """

    slots: Tensor
    offsets: Tensor
    drafts: Tensor
    seeds: Tensor


class History:
    """Prompt, output and seed of each slot.

    tokens [S, L], lengths [S], prompt_lengths [S] and seeds [S] are int64 on `device`. Lengths and seeds are
    mirrored on the host, so that reading them needs no device synchronisation. `forced` [S, L] bool marks
    forced tokens; None as long as there are none. `tokens` and `lengths` are written to the device when they
    are read, because many chains read neither.
    """

    def __init__(self, device: torch.device | str = "cpu", *, slots: int = 8, length: int = 256) -> None:
        self.device = torch.device(device)
        self._tokens = torch.zeros(slots, length, dtype=torch.int64, device=self.device)
        self._lengths = torch.zeros(slots, dtype=torch.int64, device=self.device)
        self.prompt_lengths = torch.zeros_like(self._lengths)
        self.seeds = torch.zeros_like(self._lengths)
        self.forced: Tensor | None = None
        self._host_lengths, self._host_prompts, self._host_seeds = [0] * slots, [0] * slots, [0] * slots
        self._late: list[tuple[int, int, Sequence[int]]] = []  # slot, first column, ids
        self._are_lengths_late = False
        self._largest = -1
        self._facts: dict[tuple[int, ...], SlotFacts] = {}

    @property
    def tokens(self) -> Tensor:
        """Committed tokens [S, L] int64, prompts included."""
        self._write()
        return self._tokens

    @property
    def lengths(self) -> Tensor:
        """Number of committed tokens [S] int64, prompts included."""
        if self._are_lengths_late:
            self._lengths, self._are_lengths_late = upload_ints(self._host_lengths, self.device), False
        return self._lengths

    @property
    def largest(self) -> int:
        """An upper bound of all ids in `tokens`; -1 without any."""
        self._write()
        return self._largest

    def length(self, slot: int) -> int:
        """Return the number of committed tokens of the slot, prompt included."""
        return self._host_lengths[slot]

    def longest(self, slots: Sequence[int]) -> int:
        """Return the largest number of committed tokens among these slots; 0 without any."""
        lengths = self._host_lengths
        return max([lengths[slot] for slot in slots], default=0)

    def are_even(self, slots: Iterable[int]) -> bool:
        """Whether all these slots have the same number of committed tokens."""
        lengths = self._host_lengths
        return len({lengths[slot] for slot in slots}) == 1

    def positions(self, slots: Iterable[int]) -> list[int]:
        """Return the number of output tokens of each slot: committed tokens after the prompt."""
        lengths, prompts = self._host_lengths, self._host_prompts
        return [lengths[slot] - prompts[slot] for slot in slots]

    def seed(self, slot: int) -> int:
        """Return the seed of the slot's draws as int64."""
        return self._host_seeds[slot]

    def facts(self, slots: tuple[int, ...]) -> SlotFacts:
        """Return the SlotFacts of these slots; cached until a request of theirs changes."""
        if slots not in self._facts:
            if len(self._facts) >= _MOST_FACTS:
                self._facts.clear()
            index = upload_ints(slots, self.device)
            no_drafts = index.new_empty((len(slots), 0))
            self._facts[slots] = SlotFacts(index, torch.zeros_like(index), no_drafts, self.seeds[index])
        return self._facts[slots]

    def admit(self, slot: int, prompt: Sequence[int], *, seed: int = 0) -> None:
        """Reset a slot to a prompt; `seed` is the request's 64-bit seed."""
        self._reserve(slot + 1, len(prompt))
        self._largest = max(self._largest, max(prompt, default=-1))
        self.tokens[slot, : len(prompt)] = upload_ints(prompt, self.device)
        self._set_prompt(slot, len(prompt))
        self._set_seed(slot, seed)
        if self.forced is not None:
            self.forced[slot] = False
        self._set_length(slot, len(prompt))

    def append(
        self, slots: Sequence[int], tokens: Sequence[Sequence[int]], forced: Sequence[Sequence[bool]] = ()
    ) -> None:
        """Commit tokens to the slots: one list per slot, each slot at most once.

        `forced` marks the forced tokens of each slot; an empty list means none.
        """
        lengths, late = self._host_lengths, self._late
        first = len(late)
        totals = [lengths[slot] + len(run) for slot, run in zip(slots, tokens, strict=True)]
        if (longest := max(totals, default=0)) > self._tokens.shape[1]:
            self._reserve(0, longest)  # first, because it may run out of memory; then nothing has changed
        for slot, run in zip(slots, tokens, strict=True):
            start = lengths[slot]
            lengths[slot] = start + len(run)
            late.append((slot, start, run))
        self._are_lengths_late = True
        if self.forced is not None or any(map(any, forced)):
            self._mark(late[first:], forced or [()] * len(tokens))
        if len(late) >= _MOST_LATE:
            self._write()

    def _write(self) -> None:
        if not self._late:
            return
        self._largest = max(self._largest, *[max(run, default=-1) for _, _, run in self._late])
        slots, columns, ids = self._cells(self._late)
        self._late.clear()
        self._tokens.index_put_((slots, columns), ids)

    def _cells(self, late: list[tuple[int, int, Sequence[int]]]) -> Tensor:
        """Return slot, column and id [3, N] of all tokens of these entries."""
        slots = [slot for slot, _, run in late for _ in run]
        columns = [column for _, start, run in late for column in range(start, start + len(run))]
        ids = [token for _, _, run in late for token in run]
        return upload_ints([*slots, *columns, *ids], self.device).view(3, -1)

    def _mark(self, late: list[tuple[int, int, Sequence[int]]], forced: Sequence[Sequence[bool]]) -> None:
        """Write which tokens of these entries were forced; an empty list of flags means none."""
        pairs = zip(late, forced, strict=True)
        flags = [flag for (_, _, run), marks in pairs for flag in marks or [False] * len(run)]
        if not flags:
            return
        if self.forced is None:
            self.forced = torch.zeros_like(self._tokens, dtype=torch.bool)
        slots, columns, _ = self._cells(late)
        self.forced.index_put_((slots, columns), upload(flags, self.device))

    def fork(self, source: int, target: int, *, seed: int) -> None:
        """Copy a slot; the copy draws with its own `seed`."""
        self._reserve(target + 1, 0)
        self.tokens[target] = self.tokens[source]
        if self.forced is not None:
            self.forced[target] = self.forced[source]
        self._set_prompt(target, self._host_prompts[source])
        self._set_seed(target, seed)
        self._set_length(target, self._host_lengths[source])

    def release(self, slot: int) -> None:
        self._write()
        self._set_prompt(slot, 0)
        self._set_length(slot, 0)

    def _set_length(self, slot: int, length: int) -> None:
        self._host_lengths[slot] = length
        self._are_lengths_late = True

    def _set_prompt(self, slot: int, length: int) -> None:
        self.prompt_lengths[slot].fill_(length)  # assigning to an item would synchronise with a GPU
        self._host_prompts[slot] = length

    def _set_seed(self, slot: int, seed: int) -> None:
        self.seeds[slot].fill_(seed)
        self._host_seeds[slot] = seed
        self._facts.clear()

    def _reserve(self, slots: int, length: int) -> None:
        """Grow by doubling to at least this many slots and columns."""
        have_slots, have_length = self._tokens.shape
        if slots <= have_slots and length <= have_length:
            return
        columns = self._lengths, self.prompt_lengths, self.seeds
        self._tokens = grown(self._tokens, slots, length)
        self.forced = None if self.forced is None else grown(self.forced, slots, length)
        self._lengths, self.prompt_lengths, self.seeds = (grown(column, slots) for column in columns)
        for mirror in (self._host_lengths, self._host_prompts, self._host_seeds):
            mirror += [0] * (len(self._tokens) - len(mirror))
