"""Flatten or sharpen the distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.base import Processor
from processors.catalog import Phase, TemperatureParams
from processors.kernels.parts import row_parts
from processors.rows import Rows
from processors.stages.tokens import HIGHEST, LOWEST

__all__ = ["Temperature"]


class Temperature(Processor[TemperatureParams]):
    """(logit - max) / T. The largest logit becomes 0; legal tokens stay finite, whatever T.

    A chain resolves T = 0 to greedy choice, so it does not come here; if it did, it would act as the
    smallest T: the largest logits 0, all others far below.
    """

    name = "temperature"
    phase = Phase.SCALE
    Params = TemperatureParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V]."""
        # The smallest normal float32: below it, T could only tell apart logits that differ by less than
        # any two of size 1 do.
        temperature = self.columns.exact("temperature", rows).clamp(torch.finfo(torch.float32).tiny, HIGHEST)
        temperature, peak = temperature.float()[:, None], logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        for part in row_parts(logits):
            some = logits[part]
            least = some.clamp(max=LOWEST)  # what is masked stays so, and what is finite stops there
            some.sub_(peak[part]).div_(temperature[part])
            torch.maximum(some, least, out=some)
        return logits
