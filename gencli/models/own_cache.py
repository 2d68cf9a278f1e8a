"""Models whose layers keep more than keys and values: each lane is run alone, on the model's own cache."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from gencli.models.calls import LogitsCall
from gencli.models.lanes import LaneLengths
from gencli.plan import Feed

__all__ = ["OwnCacheLanes"]

_CACHE_NAMES = ("past_key_values", "cache_params", "state")


class OwnCacheLanes:
    """Recurrent and hybrid models: slower than shared lanes, and right by construction."""

    def __init__(self, model: Any, lengths: LaneLengths, *, can_rollback: bool) -> None:
        self.can_rollback = can_rollback
        self._call = LogitsCall(model)
        self._device: torch.device = model.device
        self._lengths = lengths
        self._caches: dict[int, dict[str, Any]] = {}

    def forward(self, feeds: tuple[Feed, ...]) -> Tensor:
        """Feed the lanes one after another; return the wanted rows [R, V] in feed order."""
        return torch.cat([self._run(feed) for feed in feeds])

    def shorten(self, lane: int, length: int) -> None:
        """Drop the last tokens of an attention model's cache."""
        self._caches[lane]["past_key_values"].crop(length - self._lengths[lane])

    def fork(self, source: int, target: int) -> None:
        """Copy the whole cache."""
        self.release(target)
        if source in self._caches:
            self._caches[target] = copy.deepcopy(self._caches[source])

    def release(self, lane: int) -> None:
        """Drop the lane's cache."""
        self._caches.pop(lane, None)

    def _run(self, feed: Feed) -> Tensor:
        ids = torch.tensor([feed.tokens], dtype=torch.long, device=self._device)
        outputs = self._call(feed.wanted, input_ids=ids, **self._caches.get(feed.lane, {}))
        self._caches[feed.lane] = {name: outputs[name] for name in _CACHE_NAMES if name in outputs}
        logits: Tensor = outputs.logits[0]
        return logits
