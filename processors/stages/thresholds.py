"""Stages that depend on the shape of a row's distribution: truncation by a threshold (`top_n_sigma`,
`epsilon`, `eta`, `top_a`, `p_less`) or by order (`top_h`, `min_k`, `typical`, `tfs`), and
`dynamic_temperature`, `edt` and `smoothing`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from processors.base import Admission, P, Processor
from processors.catalog import Phase
from processors.catalog.truncation import (
    DynamicTemperatureParams,
    EdtParams,
    EpsilonParams,
    EtaParams,
    MinKParams,
    PLessParams,
    SmoothingParams,
    TfsParams,
    TopAParams,
    TopHParams,
    TopNSigmaParams,
    TypicalParams,
    VaryingParams,
)
from processors.kernels.operations import (
    drop_above,
    drop_below,
    row_cumsums,
    row_parts,
    row_sums,
    stable_order,
)
from processors.rows import Rows
from processors.stages.shared import HIGHEST, LOWEST
from processors.stages.truncation import (
    best,
    cool_,
    cut,
    enough_best,
    keep_above,
    mass,
    of_row,
    rounded_up,
    settled,
    total_mass,
)

_FAR = -800.0  # exp of it is negligible beside 1 in float64


class _Threshold(Processor[P]):
    """Base of stages that keep the logits >= a threshold, and always the largest ones."""

    phase = Phase.TRUNCATE
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
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


def _columns(table: Tensor) -> list[Tensor]:
    return [table[:, column : column + 1] for column in range(table.shape[1])]


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


_STEEP = 1e-8  # added to the range of the logits by min-k


class TopH(Processor[TopHParams]):
    """Keep the most likely tokens whose entropy is at most a share of the whole (Potraghloo et al. 2025)."""

    name = "top_h"
    phase = Phase.TRUNCATE
    Params = TopHParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Sorts the largest `candidates` of the batch."""
        ranked = best(logits, max(self.columns.known("candidates", rows) | self.columns.known("keep", rows)))
        peak = ranked[:, :1].clamp(min=LOWEST).double()
        is_candidate = _places(ranked) < self.columns.gather("candidates", rows)[:, None]
        masses = mass(ranked, peak).masked_fill_(~is_candidate, 0.0)
        total = row_sums(masses)
        if False in self.columns.known("renormalise", rows):
            is_renormalised = self.columns.gather("renormalise", rows)[:, None]
            total = torch.where(is_renormalised, total, of_row(total_mass, logits, ranked, peak))
        sums = row_cumsums(masses.div_(total).xlogy(masses).neg_())
        is_within = (sums <= sums[:, -1:] * self.columns.exact("h", rows)[:, None]) & (masses > 0)
        count = is_within.sum(1, keepdim=True).maximum(self.columns.gather("keep", rows)[:, None])
        return drop_below(logits, *cut(ranked, count))


class MinK(Processor[MinKParams]):
    """Keep the tokens before the steepest fall of the sorted logits (Ding et al. 2026)."""

    name = "min_k"
    phase = Phase.TRUNCATE
    Params = MinKParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        ranked = enough_best(logits)
        least = of_row(_least, logits, ranked).double()
        (threshold,) = settled(_cliff, logits, ranked, least, self.columns.exact("tau", rows)[:, None])
        return keep_above(logits, threshold, self.columns, rows)


class Typical(Processor[TypicalParams]):
    """Keep tokens whose surprise is closest to the expected one (Meister et al. 2022).

    With d = x - M and mean(d) under p: -ln p - H = mean(d) - d, so the closest tokens are an interval of
    logits.
    """

    name = "typical"
    phase = Phase.TRUNCATE
    Params = TypicalParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        ranked = enough_best(logits)
        sums = of_row(total_and_entropy, logits, ranked, peak)
        total, entropy = sums[:, :1], sums[:, 1:]
        names = ("boundary", "ties", "keep")
        options = (self.columns.gather(name, rows)[:, None] for name in names)
        bound = self.columns.exact("p", rows)[:, None] * total
        low, low_room, high, high_room = settled(
            _closest, logits, ranked, peak, total.log() - entropy, bound, *options
        )
        return drop_above(drop_below(logits, low, low_room), high, high_room)


class Tfs(Processor[TfsParams]):
    """Cut the tail where the curve of the sorted probabilities is flat (Phénix and Egan 2019)."""

    name = "tfs"
    phase = Phase.TRUNCATE
    Params = TfsParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        if logits.shape[1] < 3:
            return logits
        z = self.columns.exact("z", rows)[:, None]
        is_kobold = self.columns.gather("style", rows)[:, None] == 1  # centred 0, kobold 1
        keep = self.columns.gather("keep", rows)[:, None]
        return drop_below(logits, *settled(_bent, logits, enough_best(logits), z, is_kobold, keep))


def _places(ranked: Tensor) -> Tensor:
    return torch.arange(ranked.shape[1], device=ranked.device)


def _least(logits: Tensor) -> Tensor:
    """Return the smallest unmasked logit of each row [A, 1]."""
    return torch.where(logits > -math.inf, logits, math.inf).amin(1, keepdim=True)


def _cliff(ranked: Tensor, least: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether the threshold of min-k is certain, and the threshold [A, 1].

    least and tau [A, 1]. Logits not in `ranked` [A, N] lie between its last value and `least`, which bounds
    their steepest fall.
    """
    values, rank = ranked.double(), _places(ranked) + 1
    extent = values[:, :1] - least + _STEEP
    after = torch.nn.functional.pad(values[:, 1:], (0, 1), value=-math.inf)
    falls = torch.where(after > -math.inf, (values - after) / (rank * extent), -1.0)
    steepest, at = falls.max(1, keepdim=True)
    size = ranked.shape[1]
    share = (tau / extent).nan_to_num(0.0).clamp(max=size + 1).long()
    count = torch.maximum(at + 1, share)
    behind = (values[:, -1:] - least) / (size * extent)
    is_certain = (steepest >= behind) & (count <= size) | (ranked[:, -1:] == -math.inf)
    return is_certain, cut(ranked, count)[0]


def _closest(
    ranked: Tensor, peak: Tensor, mean: Tensor, bound: Tensor, boundary: Tensor, ties: Tensor, keep: Tensor
) -> tuple[Tensor, ...]:
    """Return whether the interval lies within `ranked` [A, N]; its lowest logit, room, highest logit, room.

    All are [A, 1]; a room is the number of ties that stay. `boundary`: 0 inclusive, 1 strict, 2 exclusive;
    `ties`: 0 cut, 1 keep. Tokens are ordered by distance from the mean, ties by probability.
    """
    size, below = ranked.shape[1], ranked.double().sub_(peak)
    distance = (below - mean).abs_()
    order = stable_order(distance)
    distance, values = distance.gather(1, order), ranked.gather(1, order)
    sums = row_cumsums(mass(values, peak))
    under = (sums < bound).sum(1, keepdim=True)
    count = torch.where(boundary == 1, (sums <= bound).sum(1, keepdim=True), under) + (boundary != 2)
    limit = distance.gather(1, count.clamp(min=1, max=size) - 1)
    keeps_ties = ties == 1
    count = torch.where(keeps_ties, (distance <= limit).sum(1, keepdim=True), count).maximum(keep)
    last = count.clamp(max=size) - 1
    limit, value = distance.gather(1, last), values.gather(1, last)
    is_in = _places(ranked) <= last
    low = torch.where(is_in, values, math.inf).amin(1, keepdim=True)
    high = torch.where(is_in, values, -math.inf).amax(1, keepdim=True)
    taken = (is_in & (values == value)).sum(1, keepdim=True)
    everything = torch.iinfo(taken.dtype).max
    low_room, high_room = (torch.where(value == end, taken, everything) for end in (low, high))
    # Logits not in `ranked` are farther from the mean than its last value, if that is below the mean.
    farthest = below[:, -1:]
    reach = (farthest - mean).abs()
    is_certain = (count <= size) & ~(farthest > mean) & ~((limit > reach) | (keeps_ties & (limit == reach)))
    return is_certain | (farthest == -math.inf), low, low_room, high, high_room


def _bent(ranked: Tensor, z: Tensor, is_kobold: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return whether the cut of tail-free sampling is certain, its threshold and its room [A, 1].

    z, is_kobold, keep [A, 1]. The curvature after `ranked` [A, N] is at most the sum of its last two masses.
    """
    masses = mass(ranked, ranked[:, :1].clamp(min=LOWEST).double())
    bends = (masses[:, :-2] - 2 * masses[:, 1:-1] + masses[:, 2:]).abs_()
    sums = row_cumsums(bends.masked_fill_(ranked[:, 2:] == -math.inf, 0.0))
    total = sums[:, -1:]
    behind = masses[:, -2:].sum(1, keepdim=True)
    count = (sums <= z * total).sum(1, keepdim=True)
    most_count = (sums <= z * (total + behind)).sum(1, keepdim=True)
    is_bent = total > 0
    kept = torch.where(is_kobold, count, count + 1).maximum(keep)
    kept = torch.where(is_bent, kept, ranked.shape[1])
    is_certain = is_bent & (count == most_count) & (kept <= ranked.shape[1])
    return is_certain | (ranked[:, -1:] == -math.inf), *cut(ranked, kept)


VaryingP = TypeVar("VaryingP", bound=VaryingParams)
_COLDEST = torch.finfo(torch.float32).tiny


class _Varying(Processor[VaryingP]):
    """x = (x - max(x)) / T with T by row; finite logits stay finite. T = 0 keeps the first maximum."""

    phase = Phase.SCALE
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
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

    def admit(self, slot: int, params: VaryingP, request: Admission) -> None:
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
