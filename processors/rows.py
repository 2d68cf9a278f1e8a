"""`Rows`: the rows of one step, one per token position to choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from processors.graphs import upload, upload_ints
from processors.history import History


@dataclass(frozen=True, slots=True, eq=False)
class Visible:
    """Tokens seen by each row: ids [R, W] and valid [R, W] bool; W is padded."""

    ids: Tensor
    valid: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """R rows of a step. A request with K draft tokens has K + 1 rows; its row j sees the first j drafts.

    slots, offsets (j), seeds and positions (number of tokens generated before this one) are [R] int64. drafts
    [R, K] int64 holds the request's drafts, padded with -1; K = 0 without drafts. `host_slots`: `slots` on
    the host. `host_drafts`: the drafts that each row sees. `counts`: rows of each request. `forced` [R, K]
    bool marks forced drafts; None if no stage marks any.
    """

    history: History
    slots: Tensor
    offsets: Tensor
    drafts: Tensor
    seeds: Tensor
    positions: Tensor
    host_slots: tuple[int, ...]
    host_drafts: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]
    forced: Tensor | None = None

    @classmethod
    def build(cls, history: History, slots: Sequence[int], drafts: Sequence[Sequence[int]] = ()) -> Rows:
        """Build K_i + 1 rows for each request, in order; one row each without drafts."""
        if any(drafts):
            return cls._drafted(history, slots, drafts, [range(len(run) + 1) for run in drafts])
        host_slots, count = tuple(slots), len(slots)
        on_device = *history.facts(host_slots), upload_ints(history.positions(slots), history.device)
        return cls(history, *on_device, host_slots, ((),) * count, (1,) * count)

    @classmethod
    def behind(cls, history: History, slots: Sequence[int], drafts: Sequence[Sequence[int]]) -> Rows:
        """Build one row for each request, which sees all of its drafts: the last rows of `build`."""
        if any(drafts):
            return cls._drafted(history, slots, drafts, [range(len(run), len(run) + 1) for run in drafts])
        return cls.build(history, slots)

    @classmethod
    def _drafted(
        cls,
        history: History,
        slots: Sequence[int],
        drafts: Sequence[Sequence[int]],
        offsets: Sequence[range],  # by request: how many drafts each of its rows sees
    ) -> Rows:
        width = max(map(len, drafts))
        cells, slot_of_row, host_drafts = [], list[int](), list[tuple[int, ...]]()
        each = zip(slots, history.positions(slots), drafts, offsets, strict=True)
        for slot, position, run, seen in each:
            padded = (*run, *(-1,) * (width - len(run)))
            cells += [(slot, offset, position + offset, *padded) for offset in seen]
            slot_of_row += [slot] * len(seen)
            host_drafts += [tuple(run[:offset]) for offset in seen]
        table = upload([*zip(*cells, strict=True)], history.device, torch.int64)
        at, first, positions = table[:3]
        on_device = at, first, table[3:].T, history.seeds[at], positions
        return cls(history, *on_device, tuple(slot_of_row), tuple(host_drafts), tuple(map(len, offsets)))

    def __len__(self) -> int:
        return len(self.host_slots)

    @property
    def lasts(self) -> list[int]:
        """Index of each request's last row, which sees all its drafts."""
        return [end - 1 for end in accumulate(self.counts)]

    @property
    def has_forced(self) -> bool:
        """Whether tokens or drafts may be marked as forced."""
        return self.forced is not None or self.history.forced is not None

    def drafted(self) -> Tensor:
        """Return the draft that each row verifies [R]; 0 for the last row of a request. Requires K > 0."""
        column = self.offsets[:, None].clamp(max=self.drafts.shape[1] - 1)
        return self.drafts.gather(1, column).squeeze(1).clamp(min=0)

    def select(self, index: Sequence[int]) -> Rows:
        """Return a subset of the rows. `counts` becomes all ones: grouping by request is lost."""
        at = upload_ints(index, self.history.device)
        return replace(
            self,
            slots=self.slots[at],
            offsets=self.offsets[at],
            drafts=self.drafts[at],
            seeds=self.seeds[at],
            positions=self.positions[at],
            host_slots=tuple(self.host_slots[i] for i in index),
            host_drafts=tuple(self.host_drafts[i] for i in index),
            counts=(1,) * len(index),
            forced=None if self.forced is None else self.forced[at],
        )

    def with_forced(self, places: Sequence[int] | None, forced: Tensor) -> Rows:
        """Return the rows with `forced` [A, K] bool set for the rows at `places`; None means all rows."""
        if places is None:
            return replace(self, forced=forced)
        flags = torch.zeros_like(self.drafts, dtype=torch.bool) if self.forced is None else self.forced
        at = upload(places, flags.device)
        return replace(self, forced=flags.index_copy(0, at, forced))

    def unpadded(self) -> Tensor | None:
        """Return the ids of `visible` [R, W] if no padding is needed, as without drafts; else None."""
        history = self.history
        if self.drafts.shape[1] or not history.are_even(self.host_slots):
            return None
        return history.tokens[:, : history.longest(self.host_slots)].index_select(0, self.slots)

    def visible(self) -> Visible:
        """Return prompt, output and visible drafts of each row, in order from column 0."""
        lengths = self.history.lengths[self.slots, None]
        committed = self.history.longest(self.host_slots)
        num_drafts = self.drafts.shape[1]
        ids = self.history.tokens[:, :committed].index_select(0, self.slots)
        if num_drafts:
            ids = torch.nn.functional.pad(ids, (0, num_drafts))
            columns = lengths + torch.arange(num_drafts, device=ids.device)
            ids = ids.scatter(1, columns, self.drafts)
        column = torch.arange(ids.shape[1], device=ids.device)
        return Visible(ids, column < lengths + self.offsets[:, None])

    def scoped(self, from_prompt: Tensor, from_output: Tensor, window: Tensor) -> Visible:
        """Return `visible` with only the last `window` tokens of the scope valid, forced tokens excluded.

        from_prompt, from_output [R] bool select the scope; window [R] int64 is in tokens.
        """
        seen = self.visible()
        start, end = self.bounds(from_prompt, from_output, window)
        column = torch.arange(seen.ids.shape[1], device=seen.ids.device)
        inside = (column >= start[:, None]) & (column < end[:, None])
        return Visible(seen.ids, seen.valid & inside & self.unforced(seen.ids.shape[1]))

    def bounds(self, from_prompt: Tensor, from_output: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
        """Return the columns of the last `window` tokens of the scope: start [R], and end [R], exclusive."""
        prompt = self.history.prompt_lengths[self.slots]
        total = self.history.lengths[self.slots] + self.offsets
        end = torch.where(from_output, total, prompt)
        start = torch.where(from_prompt, torch.zeros_like(prompt), prompt)
        return torch.maximum(start, end - window), end

    def unforced(self, width: int) -> Tensor:
        """Return which visible tokens were not forced [R, W] bool; a single True if none were."""
        past, num_drafts = self.history.forced, self.drafts.shape[1]
        if not self.has_forced:
            return torch.ones((), dtype=torch.bool, device=self.slots.device)
        committed = width - num_drafts
        flags = torch.zeros(len(self), width, dtype=torch.bool, device=self.slots.device)
        if past is not None:
            flags[:, :committed] = past[:, :committed].index_select(0, self.slots)
        if self.forced is not None:
            columns = self.history.lengths[self.slots, None] + torch.arange(num_drafts, device=flags.device)
            flags = flags.scatter(1, columns, self.forced)
        return ~flags
