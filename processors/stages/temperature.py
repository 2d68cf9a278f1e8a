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

    T = 0 masks all but the first of the largest logits. An unconditionally greedy chain is resolved to a
    greedy draw without this stage, so T = 0 occurs only under a condition.
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
        if 0 in self.columns.known("temperature", rows):
            _leave_first_(logits, self.columns.exact("temperature", rows) == 0)
        return logits


def _leave_first_(logits: Tensor, is_greedy: Tensor) -> None:
    """Mask all but the first of the largest logits [A, V] in some rows [A] bool."""
    first = logits.argmax(1, keepdim=True)  # NaN counts as the largest, so faults stay
    best = logits.gather(1, first)
    logits.masked_fill_(is_greedy[:, None], -torch.inf).scatter_(1, first, best)


def cool_(logits: Tensor, peak: Tensor, temperature: float | Tensor) -> Tensor:
    """Replace logits [A, N] by (logits - peak) / temperature, both [A, 1]; finite logits stay finite."""
    least = logits.clamp(max=LOWEST)  # -inf for masked logits, else the lower bound
    logits.sub_(peak).div_(temperature)
    return torch.maximum(logits, least, out=logits)
