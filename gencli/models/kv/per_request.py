"""Models whose lanes cannot share a cache: one forward pass per lane, on the model's own cache."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gencli.core.step import Feed
from gencli.errors import ModelError
from gencli.models.kv.calls import LogitsCall
from gencli.models.longrope import factors_of, taking_factors
from processors.upload import upload

__all__ = ["OwnCacheLanes"]


@dataclass(slots=True)
class _Lane:
    """The model's cache, its length in tokens, and prompt tokens not fed yet.

    `factors` is the number of the rotary factors of its text (see LongRopeLanes).
    """

    cache: Any = None
    length: int = 0
    unread: tuple[int, ...] = ()
    factors: int = 0


class OwnCacheLanes:
    """Lanes of recurrent, hybrid and older models: slower than shared lanes, correct by construction.

    Some recurrent models (Mamba) lose their state when several tokens are fed after the first pass. So an
    `is_recurrent` model is fed a chunked prompt in one pass with its last chunk, and every later token in a
    pass of its own.
    """

    def __init__(
        self, model: Any, *, is_recurrent: bool, can_rollback: bool, rope_switches: tuple[int, ...] = ()
    ) -> None:
        self.can_rollback = can_rollback
        self._rope_switches = rope_switches
        self._is_recurrent = is_recurrent
        self._call = LogitsCall(model)
        self._device: torch.device = model.device
        self._lanes: dict[int, _Lane] = {}

    def forward(self, feeds: tuple[Feed, ...]) -> Tensor:
        """Feed the lanes one after another; return the wanted logits [R, V] in feed order."""
        rows = [row for feed in feeds for row in self._read(feed)]
        return torch.cat(rows) if rows else self._call.no_rows()

    def truncate(self, lane: int, length: int) -> None:
        """Crop the cache of an attention model to `length` tokens."""
        state = self._lanes[lane]
        state.cache.crop(length - state.length)
        state.length = length

    def fork(self, source: int, target: int) -> None:
        """Copy the whole cache."""
        if source in self._lanes:
            self._lanes[target] = copy.deepcopy(self._lanes[source])

    def release(self, lane: int) -> None:
        """Drop the lane's cache."""
        self._lanes.pop(lane, None)

    def free_cache(self) -> None:
        """No-op: `release` frees the cache of a lane."""

    def _read(self, feed: Feed) -> list[Tensor]:
        """Return the wanted logits of a feed, as tensors [1, V] or [wanted, V] in order."""
        lane = self._lanes.setdefault(feed.lane, _Lane())
        tokens = lane.unread + feed.tokens
        lane.unread = ()
        lane.factors = factors_of(feed, self._rope_switches)
        if not self._is_recurrent:
            return [self._run(lane, tokens, feed.num_logits)]
        if lane.cache is not None:
            skipped = len(tokens) - feed.num_logits
            return [self._run(lane, (token,), int(i >= skipped)) for i, token in enumerate(tokens)]
        if feed.num_logits == 0:
            lane.unread = tokens
            return []
        return [self._run(lane, tokens, feed.num_logits)]

    def _run(self, lane: _Lane, tokens: tuple[int, ...], wanted: int) -> Tensor:
        start, lane.length = lane.length, lane.length + len(tokens)
        inputs = {"input_ids": upload([tokens], self._device)}
        if self._call.takes_positions:  # some models count from 0 in every call without them
            inputs["position_ids"] = torch.arange(start, lane.length, device=self._device)[None]
        switches, device = self._rope_switches, self._device
        with taking_factors([lane.factors], switches, length=lane.length, device=device):
            outputs = self._call(wanted, **inputs, cache=lane.cache)
        lane.cache = self._call.cache_of(outputs)
        if lane.cache is None:
            raise ModelError("This model hands back no cache, so it cannot go on from what it has read")
        logits: Tensor = outputs.logits[0]
        return logits
