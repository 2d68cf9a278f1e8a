"""The stages `dynamic_temperature`, `edt` and `smoothing`.

The first two divide a row by a temperature computed from the entropy H in nats of its unmasked tokens. A row
with at most one unmasked token is unchanged.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TypeVar

import torch
from torch import Tensor

from processors.base import Admission, Processor
from processors.catalog import Phase
from processors.catalog.scale import DynamicTemperatureParams, EdtParams, SmoothingParams, VaryingParams
from processors.kernels.blocks import row_parts
from processors.rows import Rows
from processors.stages.temperature import cool_
from processors.stages.thresholds import total_and_entropy
from processors.stages.tokens import HIGHEST, LOWEST

__all__ = ["DynamicTemperature", "Edt", "Smoothing"]

P = TypeVar("P", bound=VaryingParams)
_COLDEST = torch.finfo(torch.float32).tiny


class _Varying(Processor[P]):
    """x = (x - max(x)) / T with T by row; finite logits stay finite. T = 0 keeps the first maximum."""

    phase = Phase.SCALE
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        parts = row_parts(logits)
        found = torch.cat([_entropy_and_count(logits[part], peak[part].double()) for part in parts])
        entropy, count = found[:, :1], found[:, 1:]
        is_choice = count > 1
        heat = torch.where(is_choice, self._temperature(entropy, count, rows), 1.0)
        peak = torch.where(is_choice, peak, 0.0)
        first = logits.argmax(1, keepdim=True) if self._may_freeze(rows) else None
        divisor = heat.clamp(_COLDEST, HIGHEST).float()
        for part in parts:
            cool_(logits[part], peak[part], divisor[part])
        return logits if first is None else _freeze_(logits, first, heat == 0)

    def admit(self, slot: int, params: P, request: Admission) -> None:
        """Store the values; relative ones refer to temperature 1, as the chain has no temperature stage."""
        super().admit(slot, params.around(1.0) if params.is_relative else params, request)

    @abstractmethod
    def _temperature(self, entropy: Tensor, count: Tensor, rows: Rows) -> Tensor:
        """Return T [A, 1] for entropies and numbers of unmasked tokens [A, 1], all float64."""

    @abstractmethod
    def _may_freeze(self, rows: Rows) -> bool:
        """Whether T may be 0 in some row, without device synchronisation."""


class DynamicTemperature(_Varying[DynamicTemperatureParams]):
    """T = low + (high - low) * (H / ln n)^exponent, n tokens that are not masked."""

    name = "dynamic_temperature"
    Params = DynamicTemperatureParams

    def _temperature(self, entropy: Tensor, count: Tensor, rows: Rows) -> Tensor:
        low, high = self.columns.exact("min", rows)[:, None], self.columns.exact("max", rows)[:, None]
        share = (entropy / count.log()).clamp_(max=1)
        return low + (high - low) * share.pow(self.columns.exact("exponent", rows)[:, None])

    def _may_freeze(self, rows: Rows) -> bool:
        return 0.0 in self.columns.known("min", rows)


class Edt(_Varying[EdtParams]):
    """T = t0 * 0.8^(theta / H) (Zhang, Bao and Huang 2024)."""

    name = "edt"
    Params = EdtParams

    def _temperature(self, entropy: Tensor, count: Tensor, rows: Rows) -> Tensor:
        t0, theta = self.columns.exact("t0", rows)[:, None], self.columns.exact("theta", rows)[:, None]
        return t0 * torch.pow(0.8, theta / entropy)

    def _may_freeze(self, rows: Rows) -> bool:
        return True


class Smoothing(Processor[SmoothingParams]):
    """x = M - k * factor * d^2 + s * factor * d^3, with M = max(x), d = x - M, in float64.

    k = (3 - curve) / 2 and s = (curve - 1) / 2. For curve from 1 to 3 the order of the tokens is unchanged.
    """

    name = "smoothing"
    phase = Phase.SCALE
    Params = SmoothingParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        factor, curve = (self.columns.exact(name, rows)[:, None] for name in ("factor", "curve"))
        square, cube = (3 - curve) / 2, (curve - 1) / 2
        for part in row_parts(logits):
            some, top = logits[part], peak[part].double()
            below = some.double().sub_(top).clamp_(min=2 * LOWEST)  # keeps 0 * -inf from giving NaN
            slope = below.mul(cube[part]).sub_(square[part])
            bent = below.square_().mul_(factor[part]).mul_(slope).add_(top)
            torch.where(some == -math.inf, some, bent.float().clamp_(min=LOWEST), out=some)
        return logits


def _entropy_and_count(logits: Tensor, peak: Tensor) -> Tensor:
    """Return the entropy in nats and the number of finite logits [A, 2] float64, for peaks [A, 1] float64."""
    count = torch.gt(logits, -math.inf, out=torch.empty_like(logits)).sum(1, keepdim=True)
    entropy = total_and_entropy(logits, peak)[:, 1:].clamp_(min=0)
    return torch.cat([entropy, count.double()], dim=1)


def _freeze_(logits: Tensor, first: Tensor, is_frozen: Tensor) -> Tensor:
    """Give the token `first` [A, 1] all probability in rows `is_frozen` [A, 1]; finite logits stay finite."""
    if not logits.is_cuda and not bool(is_frozen.any()):
        return logits
    frozen = logits.clamp(max=LOWEST).scatter_(1, first, 0.0)
    return torch.where(is_frozen, frozen, logits)
