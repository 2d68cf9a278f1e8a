"""The stages `top_h`, `min_k`, `typical` and `tfs`: truncation by the order of the logits.

Masses are float64, relative to the largest logit M: m = exp(x - M). Masked logits are ignored.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from processors.base import Processor
from processors.catalog import Phase
from processors.catalog.ranked import MinKParams, TfsParams, TopHParams, TypicalParams
from processors.kernels.blocks import drop_above, drop_below, stable_order
from processors.kernels.sums import row_cumsums, row_sums
from processors.rows import Rows
from processors.stages.best import best, cut, enough_best, of_row, settled
from processors.stages.thresholds import total_and_entropy
from processors.stages.tokens import LOWEST
from processors.stages.truncation import keep_above, mass, total_mass

__all__ = ["MinK", "Tfs", "TopH", "Typical"]

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
        """Return logits [A, V]."""
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
        """Return logits [A, V]."""
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
        """Return logits [A, V]."""
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
    values, place = ranked.double(), _places(ranked) + 1
    extent = values[:, :1] - least + _STEEP
    after = torch.nn.functional.pad(values[:, 1:], (0, 1), value=-math.inf)
    falls = torch.where(after > -math.inf, (values - after) / (place * extent), -1.0)
    steepest, at = falls.max(1, keepdim=True)
    size = ranked.shape[1]
    share = (tau / extent).nan_to_num(0.0).clamp(max=size + 1).long()
    count = torch.maximum(at + 1, share)
    behind = (values[:, -1:] - least) / (size * extent)
    is_certain = (steepest >= behind) & (count <= size) | (ranked[:, -1:] == -math.inf)
    return is_certain, cut(ranked, count)[0]


def _closest(
    ranked: Tensor,
    peak: Tensor,
    mean: Tensor,
    bound: Tensor,
    boundary: Tensor,
    ties: Tensor,
    keep: Tensor,
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
    most = (sums <= z * (total + behind)).sum(1, keepdim=True)
    is_bent = total > 0
    kept = torch.where(is_kobold, count, count + 1).maximum(keep)
    kept = torch.where(is_bent, kept, ranked.shape[1])
    is_certain = is_bent & (count == most) & (kept <= ranked.shape[1])
    return is_certain | (ranked[:, -1:] == -math.inf), *cut(ranked, kept)
