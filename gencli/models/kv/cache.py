"""Keys and values of attention models, kept lane by lane in the rows of two buffers a layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from transformers import cache_utils
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from gencli.core.step import Feed
from gencli.models.kv.buffer_rows import LaneRows
from gencli.models.kv.lengths import STEP, LaneLengths
from gencli.models.kv.padded import Block

__all__ = ["LaneBuffer", "LaneCache", "LaneLayer", "can_crop", "fits_lanes"]

# Layers that keep nothing; older releases of the library know none.
_EMPTY: tuple[type, ...] = (cache_utils.DummyLayer,) if hasattr(cache_utils, "DummyLayer") else ()


def fits_lanes(config: Any) -> bool:
    """Whether every layer of the model keeps plain keys and values (or nothing)."""
    return _has_only(config, DynamicLayer, DynamicSlidingWindowLayer, *_EMPTY)


def can_crop(config: Any) -> bool:
    """Whether the library's own cache of this model can forget its last tokens."""
    return _has_only(config, DynamicLayer, *_EMPTY)


def _has_only(config: Any, *kinds: type) -> bool:
    """Whether the library would cache this model in layers of these kinds, subclasses not included."""
    try:
        layers = DynamicCache(config=config).layers
    except KeyError:  # a kind of layer that the library's cache does not know
        return False
    return all(type(layer) in kinds for layer in layers)


class LaneBuffer:
    """The keys, or the values, of one layer: [rows, heads, capacity, head_dim], grown on demand.

    What lies beyond a lane's length is hidden by the mask, and must be finite: 0 * inf is not 0.
    """

    def __init__(self, rows: LaneRows) -> None:
        self._rows = rows
        self._data = torch.empty(0, 0, 0, 0)

    def write(self, block: Block, states: Tensor) -> Tensor:
        """Store `states` [B, H, Q, D] of the block; return what its lanes hold [B, H, K, D]."""
        data = self._data
        num_rows, length = block.room
        if data.shape[0] < num_rows or data.shape[2] < length:
            data = self._grow(num_rows, length, states)
        if block.target is None:  # neighbouring lanes of equal length: one rectangle
            held = data[block.lanes, :, : block.kv_length]
            held[:, :, block.start :] = states
            return held
        fed = states.transpose(1, 2)  # [B, Q, H, D]
        data.transpose(1, 2)[block.target] = fed.flatten(0, 1) if block.source is None else fed[block.source]
        return data[block.lanes, :, : block.kv_length]

    def fork(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of one row to another."""
        data = self._grow(target + 1, length, self._data) if target >= self._data.shape[0] else self._data
        data[target, :, :length] = data[source, :, :length]

    def wipe(self, row: int, length: int) -> None:
        """Zero the row, so that nothing of it can reach the next request."""
        if row < self._data.shape[0]:
            self._data[row, :, :length] = 0

    def free_cache(self) -> None:
        """Drop the buffer, whose lanes are all empty."""
        self._data = torch.empty(0, 0, 0, 0)

    def _grow(self, num_rows: int, length: int, like: Tensor) -> Tensor:
        """Make room: rows double, lengths grow by steps, and only what is held is copied."""
        old_rows, _, capacity, _ = self._data.shape
        if num_rows > old_rows:
            num_rows = min(max(num_rows, 2 * old_rows), len(self._rows))
        capacity = max(-(-length // STEP) * STEP, capacity)
        data = like.new_zeros(max(num_rows, old_rows), like.shape[1], capacity, like.shape[3])
        for row, held in self._rows.held():
            data[row, :, :held] = self._data[row, :, :held]
        self._data = data
        return data


class LaneLayer:
    """One layer of the cache. A sliding layer keeps every token: the model's mask hides the old ones."""

    is_compileable = False
    supports_early_init = False

    def __init__(self, rows: LaneRows, *, is_sliding: bool) -> None:
        self.is_sliding = is_sliding
        self.buffers = (LaneBuffer(rows), LaneBuffer(rows))


class LaneCache(Cache):  # type: ignore[misc]
    """The cache a model is called with: it reads and writes the lanes of `block`, which are rows here."""

    def __init__(self, config: Any, lengths: LaneLengths) -> None:
        self._rows = LaneRows(lengths)
        layers = [
            layer if isinstance(layer, _EMPTY) else LaneLayer(self._rows, is_sliding=layer.is_sliding)
            for layer in DynamicCache(config=config).layers
        ]
        super().__init__(layers=layers)
        self._buffers = [buffer for layer in layers for buffer in getattr(layer, "buffers", ())]
        self._lengths = lengths
        self._written = [0] * len(lengths)  # tokens ever written to a row since it was wiped
        self.block: Block | None = None

    def seat(self, feeds: tuple[Feed, ...]) -> tuple[Feed, ...]:
        """The feeds with rows for lanes.

        How far these are about to be written is noted, rejected drafts and failed passes included.
        """
        seated = tuple(replace(feed, lane=self._rows.take(feed.lane)) for feed in feeds)
        for feed in seated:
            self._written[feed.lane] = max(self._written[feed.lane], feed.start + len(feed.tokens))
        return seated

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the keys and values of one layer; return those of the block's lanes."""
        block = cast(Block, self.block)
        keys, values = self.layers[layer_idx].buffers
        return keys.write(block, key_states), values.write(block, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens held before this pass by the lane that will be the longest."""
        return 0 if self.block is None else self.block.num_held

    @property
    def is_initialized(self) -> bool:
        """Whether a lane of the block held anything before this pass."""
        return self.get_seq_length() > 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Number of keys attention sees, and the position of the first."""
        return cast(Block, self.block).kv_length, 0

    def get_query_offset(self, layer_idx: int = 0) -> int | Tensor:
        """What the lane masks are built from: the common start, or all positions [B, Q]."""
        block = cast(Block, self.block)
        return block.positions if block.start is None else block.start

    def fork(self, source: int, target: int) -> None:
        """Copy one lane to another; a source that was never fed has nothing to copy."""
        if length := self._lengths[source]:
            start, end = self._rows.take(source), self._rows.take(target)
            self._written[end] = length
            for buffer in self._buffers:
                buffer.fork(start, end, length)

    def wipe(self, lane: int) -> None:
        """Zero all that was written to the lane, which has no row until it is written again."""
        row = self._rows.find(lane)
        if row is None:
            return
        for buffer in self._buffers:
            buffer.wipe(row, self._written[row])
        self._written[row] = 0
        self._rows.free(lane)

    def free_cache(self) -> None:
        """Drop all buffers; every lane is empty."""
        for buffer in self._buffers:
            buffer.free_cache()
