"""The stages `top_n_sigma`, `epsilon`, `eta`, `top_a` and `p_less`: a threshold from the row's distribution.

Sums are float64 [A, 1], relative to the largest logit M: m = exp(x - M), S = sum m, p = m / S. Masked logits
are ignored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from processors.base import Processor
from processors.catalog import Phase
from processors.catalog.thresholds import EpsilonParams, EtaParams, PLessParams, TopAParams, TopNSigmaParams
from processors.kernels.blocks import row_parts
from processors.kernels.sums import row_sums
from processors.params import Params
from processors.rows import Rows
from processors.stages.tokens import LOWEST
from processors.stages.truncation import keep_above, mass, rounded_up, total_mass

__all__ = ["Epsilon", "Eta", "PLess", "TopA", "TopNSigma", "total_and_entropy"]

P = TypeVar("P", bound=Params)
_FAR = -800.0  # exp of it is negligible beside 1 in float64


class _Threshold(Processor[P]):
    """Base of stages that keep the logits >= a threshold, and always the largest ones."""

    phase = Phase.TRUNCATE
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        threshold = torch.minimum(peak + self._below_peak(logits, peak, rows), peak)
        return keep_above(logits, rounded_up(threshold), self.columns, rows)

    @abstractmethod
    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        """Return threshold - peak [A, 1] float64; NaN keeps all."""


class TopNSigma(_Threshold[TopNSigmaParams]):
    """Keep logits within n standard deviations of the largest one (Tang et al. 2024)."""

    name = "top_n_sigma"
    Params = TopNSigmaParams

    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        is_sample = self.columns.gather("std", rows)[:, None] == 1  # population 0, sample 1
        return -self.columns.exact("n", rows)[:, None] * _by_parts(_deviation, logits, peak, is_sample)


class Epsilon(_Threshold[EpsilonParams]):
    """Keep tokens with p >= cutoff (Hewitt, Manning and Liang 2022)."""

    name = "epsilon"
    Params = EpsilonParams

    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        total = _by_parts(total_mass, logits, peak)
        return self.columns.exact("cutoff", rows)[:, None].log() + total.log()


class Eta(_Threshold[EtaParams]):
    """Keep tokens with p >= min(cutoff, sqrt(cutoff) exp(-H)) (Hewitt, Manning and Liang 2022)."""

    name = "eta"
    Params = EtaParams

    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        total, entropy = _columns(_by_parts(total_and_entropy, logits, peak))
        cutoff = self.columns.exact("cutoff", rows)[:, None].log()
        return torch.minimum(cutoff, cutoff / 2 - entropy) + total.log()


class TopA(_Threshold[TopAParams]):
    """Keep tokens with p >= a max(p)^2."""

    name = "top_a"
    Params = TopAParams

    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        total = _by_parts(total_mass, logits, peak)
        return self.columns.exact("a", rows)[:, None].log() - total.log()


class PLess(_Threshold[PLessParams]):
    """Keep tokens at least as probable as a drawn token is on average (Tan et al. 2025)."""

    name = "p_less"
    Params = PLessParams

    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        order = self.columns.exact("order", rows)[:, None]
        sums = _squares if self.columns.known("order", rows) == {2.0} else _powers
        total, powers, count = _columns(_by_parts(sums, logits, peak, order))
        mean = ((powers.log() - order * total.log()) / (order - 1)).exp()
        normed = (count * mean - 1).clamp_(min=0) / (count - 1)
        is_normed = self.columns.gather("norm", rows)[:, None] == 1
        return torch.where(is_normed, normed, mean).log() + total.log()


def _by_parts(sums: Callable[..., Tensor], logits: Tensor, *columns: Tensor) -> Tensor:
    """Return `sums` of logits [A, V] and columns [A, 1], computed for groups of rows that fit the cache."""
    parts = row_parts(logits)
    return torch.cat([sums(logits[part], *(column[part] for column in columns)) for part in parts])


def _columns(found: Tensor) -> list[Tensor]:
    return [found[:, place : place + 1] for place in range(found.shape[1])]


def _deviation(logits: Tensor, peak: Tensor, is_sample: Tensor) -> Tensor:
    """Return the standard deviation of the finite logits [A, 1]."""
    is_in = logits > -torch.inf
    count = is_in.sum(1, keepdim=True)
    below = torch.where(is_in, logits.double() - peak, 0.0)
    below -= row_sums(below) / count
    squares = row_sums(torch.where(is_in, below, 0.0).square_())
    return (squares / (count - is_sample.long())).sqrt_()


def total_and_entropy(logits: Tensor, peak: Tensor) -> Tensor:
    """Return the total mass and the entropy in nats [A, 2], for peaks [A, 1] float64."""
    masses = mass(logits, peak)
    total = row_sums(masses)
    weighted = row_sums(masses.mul_((logits.double() - peak).clamp_(min=_FAR)))
    return torch.cat([total, total.log() - weighted / total], dim=1)


def _powers(logits: Tensor, peak: Tensor, order: Tensor) -> Tensor:
    """Return the sums of m and of m^order, and the number of finite logits [A, 3]."""
    return _sums(logits, peak, lambda masses: torch.where(order == 2, masses.square(), masses.pow(order)))


def _squares(logits: Tensor, peak: Tensor, order: Tensor) -> Tensor:
    """Return what `_powers` returns for rows of order 2, bit for bit, in two thirds of the time."""
    return _sums(logits, peak, Tensor.square_)


def _sums(logits: Tensor, peak: Tensor, power: Callable[[Tensor], Tensor]) -> Tensor:
    masses = mass(logits, peak)
    total, count = row_sums(masses), (logits > -torch.inf).sum(1, keepdim=True)
    return torch.cat([total, row_sums(power(masses)), count.double()], dim=1)
