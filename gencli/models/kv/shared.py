"""Attention models: all lanes share one cache and, where it pays, one forward pass."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from gencli.core.step import Feed
from gencli.models.kv.cache import LaneCache
from gencli.models.kv.calls import LogitsCall
from gencli.models.kv.flat import FLAT_MODELS, make_flat
from gencli.models.kv.lengths import LaneLengths
from gencli.models.kv.packed_attention import laid_out
from gencli.models.kv.padded import Block, fill_gaps, is_rectangle, make_block, room_for, split_feeds
from gencli.models.longrope import factors_of, taking_factors
from processors.upload import upload

__all__ = ["PAD_BUDGET_ACCELERATOR", "PAD_BUDGET_CPU", "SlotLanes"]

# Pads (tokens) that feeds may cost to share a pass: about what reading the weights once more costs.
PAD_BUDGET_CPU, PAD_BUDGET_ACCELERATOR = 16, 256


class SlotLanes:
    """Runs blocks of lanes through the model, with the lanes' keys and values in a LaneCache."""

    can_rollback = True

    def __init__(self, model: Any, lengths: LaneLengths, *, rope_switches: tuple[int, ...] = ()) -> None:
        self._call = LogitsCall(model)
        self._cache = LaneCache(model.config, lengths)
        self._device: torch.device = model.device
        self._pad_budget = PAD_BUDGET_CPU if self._device.type == "cpu" else PAD_BUDGET_ACCELERATOR
        self._rope_switches = rope_switches
        self._is_flat = model.config.get_text_config(decoder=True).model_type in FLAT_MODELS
        # One row of tokens has no pads, whatever shares it.
        self._pass_budget = sys.maxsize if self._is_flat else self._pad_budget

    def forward(self, feeds: tuple[Feed, ...]) -> Tensor:
        """Feed the lanes; return the wanted rows [R, V] in feed order."""
        feeds = self._cache.seat(feeds)
        groups = split_feeds(feeds, pad_budget=self._pass_budget)
        room = room_for(feeds)
        blocks = [self._block(group, room) for group in groups]
        passes = [self._run(block) for block in blocks]
        rows = passes[0] if len(passes) == 1 else torch.cat(passes)
        fed = [feed for block in blocks for feed in block.feeds if feed.tokens]
        if not len(rows) or all(a is b for a, b in zip(fed, feeds, strict=True)):
            return rows
        return rows[upload(_row_order(fed, feeds), rows.device)]

    def truncate(self, lane: int, length: int) -> None:
        """Nothing to do: what lies beyond a lane's length is never seen."""

    def fork(self, source: int, target: int) -> None:
        """Copy the keys and values of one lane to another."""
        self._cache.fork(source, target)

    def release(self, lane: int) -> None:
        """Forget the lane."""
        self._cache.wipe(lane)

    def free_cache(self) -> None:
        """Drop the buffers; they grow again as far as they are needed."""
        self._cache.free_cache()

    def _block(self, group: tuple[Feed, ...], room: tuple[int, int]) -> Block:
        if self._is_flat and not is_rectangle(group):
            return make_flat(group, self._device, room=room, pad_budget=self._pad_budget)
        return make_block(fill_gaps(group, pad_budget=self._pad_budget), self._device, room=room)

    def _run(self, block: Block) -> Tensor:
        self._cache.block = block
        with laid_out(block.parts), self._factors(block):
            outputs = self._call(
                block.wanted, input_ids=block.ids, position_ids=block.positions, past_key_values=self._cache
            )
        logits: Tensor = outputs.logits  # [B, wanted, V]
        if block.parts or all(feed.wanted == block.wanted for feed in block.feeds):
            return logits.flatten(0, 1)
        rows = zip(logits, block.feeds, strict=True)
        return torch.cat([row[block.wanted - feed.wanted :] for row, feed in rows])

    def _factors(self, block: Block) -> AbstractContextManager[None]:
        """The rotary factors of a long-rope model: those of each lane's text."""
        switches, is_row = self._rope_switches, bool(block.parts)
        if not switches:
            return nullcontext()
        factors = [
            factors_of(feed, switches)
            for feed in block.feeds
            for _ in range(len(feed.tokens) if is_row else 1)
        ]
        return taking_factors(factors, switches, length=block.kv_length, device=self._device, is_row=is_row)


def _row_order(fed: list[Feed], feeds: tuple[Feed, ...]) -> list[int]:
    """Where each row of the answer lies among the rows as they were computed."""
    first_row: dict[int, int] = {}
    total = 0
    for feed in fed:
        first_row[feed.lane] = total
        total += feed.wanted
    return [first_row[feed.lane] + index for feed in feeds for index in range(feed.wanted)]
