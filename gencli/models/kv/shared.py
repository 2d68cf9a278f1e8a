"""Attention models: all lanes share one KV cache and, where that is faster, one forward pass."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from gencli.core.step import Feed, room_for
from gencli.models.kv.cache import LaneCache
from gencli.models.kv.calls import LogitsCall
from gencli.models.kv.flat import FLAT_MODELS, make_packed_batch
from gencli.models.kv.lengths import LaneLengths
from gencli.models.kv.packed_attention import packed_layout
from gencli.models.kv.padded import (
    ForwardBatch,
    fill_gaps,
    is_rectangle,
    make_padded_batch,
    split_feeds,
)
from gencli.models.kv.static_calls import StaticCalls
from gencli.models.kv.static_steps import SPARE_ROWS, is_decode_step
from gencli.models.longrope import factors_of, taking_factors
from processors.graphs import Graphs
from processors.upload import upload

__all__ = ["PAD_BUDGET_ACCELERATOR", "PAD_BUDGET_CPU", "SlotLanes"]

# Maximum pads (tokens) in a shared pass: about the cost of reading the weights once more.
PAD_BUDGET_CPU, PAD_BUDGET_ACCELERATOR = 16, 256


class SlotLanes:
    """KV lanes in one LaneCache; a forward pass feeds a batch of them.

    With `graphs` steps of one token a feed have shapes that these can record.
    """

    can_rollback = True

    def __init__(
        self,
        model: Any,
        lengths: LaneLengths,
        *,
        rope_switches: tuple[int, ...] = (),
        graphs: Graphs | None = None,
    ) -> None:
        self._call = LogitsCall(model)
        self._device: torch.device = model.device
        self._cache = cache = LaneCache(model.config, lengths, spare=0 if graphs is None else SPARE_ROWS)
        self._static: StaticCalls | None = None
        if graphs is not None:
            context = lengths.context
            self._static = StaticCalls(self._call, cache, graphs, self._device, context, rope_switches)
        self._pad_budget = PAD_BUDGET_CPU if self._device.type == "cpu" else PAD_BUDGET_ACCELERATOR
        self._rope_switches = rope_switches
        self._is_flat = model.config.get_text_config(decoder=True).model_type in FLAT_MODELS
        # The packed layout has no pads.
        self._pass_budget = sys.maxsize if self._is_flat else self._pad_budget

    def forward(self, feeds: tuple[Feed, ...], ids: Tensor | None = None) -> Tensor:
        """Feed the lanes; return the wanted logits [R, V] in feed order.

        `ids` [R] int64 on the device replace the tokens of a step of one token a feed, which takes `graphs`.
        """
        feeds = self._cache.store.seat(feeds)
        room = room_for(feeds)
        if self._static is not None:
            if is_decode_step(feeds):
                return self._static(feeds, ids)
            room = room[0], self._static.capacity(room[1])
        assert ids is None
        groups = split_feeds(feeds, pad_budget=self._pass_budget)
        batches = [self._make_batch(group, room) for group in groups]
        passes = [self._run(batch) for batch in batches]
        rows = passes[0] if len(passes) == 1 else torch.cat(passes)
        fed = [feed for batch in batches for feed in batch.feeds if feed.tokens]
        if not len(rows) or all(a is b for a, b in zip(fed, feeds, strict=True)):
            return rows
        return rows[upload(_row_order(fed, feeds), rows.device)]

    def holds(self, feeds: tuple[Feed, ...]) -> bool:
        """Return whether the buffers hold these feeds of one token without growing. No lane is empty."""
        assert self._static is not None
        feeds = self._cache.store.seat(feeds)
        return self._cache.store.holds(self._static.rows(feeds).num_held, max(feed.end for feed in feeds))

    def truncate(self, lane: int, length: int) -> None:
        """No-op: the mask hides tokens beyond a lane's length."""

    def fork(self, source: int, target: int) -> None:
        """Copy the keys and values of one lane to another."""
        self._cache.store.fork(source, target)

    def release(self, lane: int) -> None:
        """Zero the lane and free its row."""
        self._cache.store.wipe(lane)

    def free_cache(self) -> None:
        """Free the buffers; they grow again on demand."""
        self._cache.store.free_cache()
        if self._static is not None:
            self._static.free()

    def _make_batch(self, group: tuple[Feed, ...], room: tuple[int, int]) -> ForwardBatch:
        if self._is_flat and not is_rectangle(group):
            return make_packed_batch(group, self._device, room=room, pad_budget=self._pad_budget)
        return make_padded_batch(fill_gaps(group, pad_budget=self._pad_budget), self._device, room=room)

    def _run(self, batch: ForwardBatch) -> Tensor:
        self._cache.batch = batch
        with packed_layout(batch.query_splits), self._factors(batch):
            outputs = self._call(
                batch.wanted, input_ids=batch.ids, position_ids=batch.positions, cache=self._cache
            )
        logits: Tensor = outputs.logits  # [B, wanted, V]
        if batch.query_splits or all(feed.num_logits == batch.wanted for feed in batch.feeds):
            return logits.flatten(0, 1)
        rows = zip(logits, batch.feeds, strict=True)
        return torch.cat([row[batch.wanted - feed.num_logits :] for row, feed in rows])

    def _factors(self, batch: ForwardBatch) -> AbstractContextManager[None]:
        """Return a context with the rotary factors of each lane's text; no effect without long rope."""
        switches, is_row = self._rope_switches, bool(batch.query_splits)
        if not switches:
            return nullcontext()
        factors = [
            factors_of(feed, switches)
            for feed in batch.feeds
            for _ in range(len(feed.tokens) if is_row else 1)
        ]
        return taking_factors(factors, switches, length=batch.kv_length, device=self._device, is_row=is_row)


def _row_order(fed: list[Feed], feeds: tuple[Feed, ...]) -> list[int]:
    """Return the index of each result row among the computed rows."""
    first_row: dict[int, int] = {}
    total = 0
    for feed in fed:
        first_row[feed.lane] = total
        total += feed.num_logits
    return [first_row[feed.lane] + index for feed in feeds for index in range(feed.num_logits)]
