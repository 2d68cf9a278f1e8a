"""KV cache of attention models: two buffers per layer, one row of a buffer per KV lane."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor
from transformers import cache_utils
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from gencli.models.kv.buffers import LaneBuffer, LaneRows, LaneStore
from gencli.models.kv.lengths import LaneLengths
from gencli.models.kv.padded import ForwardBatch

__all__ = ["LaneCache", "LaneLayer", "can_crop", "fits_lanes"]

# Layers without a cache; older releases of transformers have no such class.
_EMPTY: tuple[type, ...] = (cache_utils.DummyLayer,) if hasattr(cache_utils, "DummyLayer") else ()


def fits_lanes(config: Any) -> bool:
    """Return whether every layer of the model caches plain keys and values, or nothing."""
    return _has_only(config, DynamicLayer, DynamicSlidingWindowLayer, *_EMPTY)


def can_crop(config: Any) -> bool:
    """Return whether the transformers cache of this model can drop its last tokens."""
    return _has_only(config, DynamicLayer, *_EMPTY)


def _has_only(config: Any, *kinds: type) -> bool:
    """Return whether transformers caches this model in layers of exactly these classes."""
    try:
        layers = DynamicCache(config=config).layers
    except KeyError:  # a layer type without a cache class
        return False
    return all(type(layer) in kinds for layer in layers)


class LaneLayer:
    """One layer of the cache. A sliding-window layer keeps every token; the model's mask hides old ones."""

    is_compileable = False
    supports_early_init = False

    def __init__(self, rows: LaneRows, *, is_sliding: bool) -> None:
        self.is_sliding = is_sliding
        self.buffers = (LaneBuffer(rows), LaneBuffer(rows))


class LaneCache(Cache):  # type: ignore[misc]
    """The cache of a model call: reads and writes the lanes of `batch`, given as buffer rows.

    There are `spare` rows more than lanes.
    """

    def __init__(self, config: Any, lengths: LaneLengths, *, spare: int = 0) -> None:
        self.store = LaneStore(lengths, spare=spare)
        layers = [
            layer if isinstance(layer, _EMPTY) else LaneLayer(self.store.rows, is_sliding=layer.is_sliding)
            for layer in DynamicCache(config=config).layers
        ]
        super().__init__(layers=layers)
        self.store.buffers = [buffer for layer in layers for buffer in getattr(layer, "buffers", ())]
        self.batch: ForwardBatch | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the keys and values of one layer; return those of all lanes in the batch."""
        batch = cast(ForwardBatch, self.batch)
        keys, values = self.layers[layer_idx].buffers
        return keys.write(batch, key_states), values.write(batch, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the tokens held before this pass by the lane that is longest after it."""
        return 0 if self.batch is None else self.batch.num_held

    @property
    def is_initialized(self) -> bool:
        """Whether the longest lane of the batch held tokens before this pass."""
        return self.get_seq_length() > 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return the number of keys (K) and the position of the first one."""
        return cast(ForwardBatch, self.batch).kv_length, 0

    def get_query_offset(self, layer_idx: int = 0) -> int | Tensor:
        """Return the input of the lane masks: the common start position, or all positions [B, Q]."""
        batch = cast(ForwardBatch, self.batch)
        return batch.positions if batch.start is None else batch.start
