"""Flatten or sharpen the distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from processors.base import Processor
from processors.catalog import Phase, TemperatureParams
from processors.rows import Rows
from processors.stages.numbers import HIGHEST, LOWEST

__all__ = ["Temperature"]


class Temperature(Processor[TemperatureParams]):
    """(logit - max) / T. The largest logit becomes 0; legal tokens stay finite, whatever T.

    A chain resolves T = 0 to greedy choice, so it does not come here; if it did, it would act as the
    smallest T: the largest logits 0, all others far below.
    """

    name = "temperature"
    phase = Phase.SCALE
    Params = TemperatureParams

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V]."""
        masked = logits == -math.inf
        # The smallest normal float32: below it, T could only tell apart logits that differ by less than
        # any two of size 1 do.
        temperature = self.columns.gather("temperature", rows).clamp(torch.finfo(torch.float32).tiny, HIGHEST)
        peak = logits.amax(1, keepdim=True)
        logits.sub_(peak).div_(temperature.float()[:, None]).clamp_(min=LOWEST)
        return logits.masked_fill_(masked, -math.inf)
