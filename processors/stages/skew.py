"""The stage `skew`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from processors.base import Processor
from processors.catalog import Phase
from processors.catalog.feedback import SkewParams
from processors.kernels.blocks import row_parts
from processors.kernels.ranking import ranked
from processors.kernels.sums import row_cumsums
from processors.rows import Rows
from processors.stages.tokens import LOWEST

__all__ = ["Skew"]

_SMALL = 1e-9  # for r below it, ln(1 - (1 - r)^g) is ln(g r)


class Skew(Processor[SkewParams]):
    """p[i] = c[i]^g - c[i - 1]^g, g = e^s; c is the cumulative sum of p in descending order, ties by id.

    In the log domain: ln p[i] = g ln c[i] + ln(1 - (1 - p[i] / c[i])^g), so unlikely tokens stay possible.
    The total mass of the logits is unchanged.
    """

    name = "skew"
    phase = Phase.GATE
    Params = SkewParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Sorts all unmasked logits."""
        gain = self.columns.exact("s", rows).exp()[:, None]
        for part in row_parts(logits):
            values, ids = ranked(logits[part])
            logits[part].scatter_(1, ids, _skewed(values, gain[part]))
        return logits


def _skewed(values: Tensor, gain: Tensor) -> Tensor:
    """Return the new logits [A, N] float32 of sorted logits, for g [A, 1] float64."""
    x = values.double()
    peak = x[:, :1].clamp(min=LOWEST)
    below = x - peak
    sums = row_cumsums(below.exp())
    total = sums[:, -1:]
    ratio = below - sums.log()  # ln(p[i] / c[i])
    chance = ratio.exp()
    bent = (-torch.expm1(gain * torch.log1p(-chance))).log()
    is_small = chance * gain.clamp(min=1) < _SMALL
    bent = torch.where(is_small, gain.log() + ratio, bent)
    new = (bent + gain * (sums / total).log() + total.log() + peak).clamp(min=LOWEST)
    return torch.where(values == -math.inf, values, new.float())
