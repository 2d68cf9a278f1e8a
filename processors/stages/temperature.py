"""The stage `temperature`."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.base import Processor
from processors.catalog import Phase, TemperatureParams
from processors.kernels.blocks import row_parts
from processors.rows import Rows
from processors.stages.tokens import HIGHEST, LOWEST

__all__ = ["Temperature", "cool_"]


class Temperature(Processor[TemperatureParams]):
    """x = (x - max(x)) / T. The largest logit becomes 0; finite logits stay finite for any T.

    A chain resolves T = 0 to greedy decoding before this stage. Here it acts as the smallest T: the largest
    logits become 0, all others far below.
    """

    name = "temperature"
    phase = Phase.SCALE
    Params = TemperatureParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        # The lower bound of T is the smallest normal float32. A smaller T would matter only for logits that
        # differ by less than the float32 spacing near 1.
        temperature = self.columns.exact("temperature", rows).clamp(torch.finfo(torch.float32).tiny, HIGHEST)
        temperature, peak = temperature.float()[:, None], logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        for part in row_parts(logits):
            cool_(logits[part], peak[part], temperature[part])
        return logits


def cool_(logits: Tensor, peak: Tensor, temperature: float | Tensor) -> Tensor:
    """Replace logits [A, N] by (logits - peak) / temperature, both [A, 1]; what is finite stays finite."""
    least = logits.clamp(max=LOWEST)  # -inf for masked logits, else the lower bound
    logits.sub_(peak).div_(temperature)
    return torch.maximum(logits, least, out=logits)
