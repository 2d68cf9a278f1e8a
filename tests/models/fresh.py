"""A runner that keeps nothing, which others have to equal: each row of logits is one pass over the text."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from gencli.core.request import StepPlan
from gencli.models.hf_runner import context_of
from gencli.models.model_runner import ModelSpec


class FreshRunner:
    """Lanes of tokens."""

    def __init__(self, model: Any) -> None:
        self._model, self._lanes = model, defaultdict[int, list[int]](list)
        width = model.config.vocab_size
        self.spec = ModelSpec("fresh", width, context_of(model.config), model.device, model.dtype)

    @torch.inference_mode()
    def forward(self, plan: StepPlan) -> Tensor:
        rows = []
        for feed in plan.feeds:
            assert feed.start == len(self._lanes[feed.lane])
            self._lanes[feed.lane] += feed.tokens
            text = self._lanes[feed.lane]
            for length in range(len(text) - feed.num_logits + 1, len(text) + 1):
                ids = torch.tensor([text[:length]])
                rows.append(self._model(input_ids=ids, use_cache=False).logits[0, -1:])
        return torch.cat(rows) if rows else torch.empty(0, self.spec.vocab_size)

    def truncate(self, lane: int, length: int) -> None:
        del self._lanes[lane][length:]

    def fork(self, source: int, target: int) -> None:
        self._lanes[target] = [*self._lanes[source]]

    def release(self, lane: int) -> None:
        self._lanes.pop(lane, None)

    def free_cache(self) -> None:
        pass
