"""The stages `top_k`, `top_p` and `min_p`: keep the most likely tokens, mask the rest.

Each computes a threshold and a room: tokens above the threshold are kept, and of the tokens equal to it the
`room` lowest ids.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from processors.base import Processor
from processors.catalog import MinPParams, Phase, TopKParams, TopPParams
from processors.columns import Columns
from processors.kernels.blocks import drop_below
from processors.kernels.sums import row_cumsums, row_sums
from processors.rows import Rows
from processors.stages.best import best, cut, enough_best, of_row, settled
from processors.stages.tokens import LOWEST

__all__ = ["MinP", "TopK", "TopP", "keep_above", "least_kept", "mass", "rounded_up", "total_mass"]

_LOG2_E = math.log2(math.e)


class TopK(Processor[TopKParams]):
    """Keep exactly the k most likely tokens, ties by lowest id; `ties: keep` keeps all ties."""

    name = "top_k"
    phase = Phase.TRUNCATE
    Params = TopKParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Sorts the largest k of the batch."""
        largest = max(self.columns.known("k", rows) | self.columns.known("keep", rows))
        ranked = best(logits, largest)
        count = torch.maximum(self.columns.gather("k", rows), self.columns.gather("keep", rows))[:, None]
        threshold, room = cut(ranked, count)
        keep_ties = self.columns.gather("ties", rows)[:, None] == 1  # cut 0, keep 1
        return drop_below(logits, threshold, torch.where(keep_ties, logits.shape[1], room))

    def idle(self, rows: Rows) -> list[str]:
        """Return the reason: at most k tokens are left."""
        return [f"{count} tokens or fewer are left" for count in self.columns.gather("k", rows).tolist()]


class TopP(Processor[TopPParams]):
    """Keep the nucleus: the most likely tokens until their probabilities sum to p (Holtzman et al. 2019).

    A token is kept if the mass before it is below p, so the one that crosses p is kept. With `boundary:
    exclusive` it is kept if the mass including it is at most p.
    """

    name = "top_p"
    phase = Phase.TRUNCATE
    Params = TopPParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Masses are float64."""
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        ranked = enough_best(logits)
        bound = of_row(total_mass, logits, ranked, peak) * self.columns.exact("p", rows)[:, None]
        is_exclusive = self.columns.gather("boundary", rows)[:, None] == 1  # inclusive 0, exclusive 1
        keep = self.columns.gather("keep", rows)[:, None]
        return drop_below(logits, *settled(_nucleus, logits, ranked, peak, bound, is_exclusive, keep))


class MinP(Processor[MinPParams]):
    """Keep tokens at least p times as likely as the most likely one (Nguyen et al. 2024).

    In the log domain: x >= max(x) + ln p, so p = 1 keeps exactly the ties with the maximum.
    """

    name = "min_p"
    phase = Phase.TRUNCATE
    Params = MinPParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Sorts only if some row has `keep` above 1."""
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        threshold = least_kept(peak, self.columns.exact("p", rows)[:, None])
        return keep_above(logits, threshold, self.columns, rows)


def keep_above(logits: Tensor, threshold: Tensor, columns: Columns, rows: Rows) -> Tensor:
    """Mask logits [A, V] below the threshold [A, 1], except the `keep` largest (a field of `columns`)."""
    most = max(columns.known("keep", rows))
    if most == 1:
        return drop_below(logits, threshold)
    last, room = cut(best(logits, most), columns.gather("keep", rows)[:, None])
    room = torch.where(last < threshold, room, logits.shape[1])
    return drop_below(logits, torch.minimum(threshold, last), room)


def total_mass(logits: Tensor, peak: Tensor) -> Tensor:
    """Return the sum of exp(logits - peak) over each row [A, 1] float64."""
    return row_sums(mass(logits, peak))


def _nucleus(
    ranked: Tensor, peak: Tensor, bound: Tensor, is_exclusive: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return whether the nucleus ends within `ranked` [A, N], its threshold and its room [A, 1].

    peak, bound, is_exclusive, keep [A, 1]. Masses are relative to that of the most likely token.
    """
    sums = row_cumsums(mass(ranked, peak))
    inclusive = (sums < bound).sum(1, keepdim=True) + 1
    exclusive = (sums <= bound).sum(1, keepdim=True)
    count = torch.where(is_exclusive, exclusive, inclusive).maximum(keep)
    return count < ranked.shape[1], *cut(ranked, count)


def mass(logits: Tensor, peak: Tensor) -> Tensor:
    """Return exp(logits - peak) in float64, by exp2, which takes a CPU a quarter of the time of exp."""
    return logits.double().sub_(peak).mul_(_LOG2_E).exp2_()


def least_kept(peak: Tensor, p: Tensor) -> Tensor:
    """Return the smallest logit [A, 1] float32 that min-p keeps, for peak [A, 1] and p [A, 1] float64."""
    return rounded_up(peak.double() + p.log())


def rounded_up(value: Tensor) -> Tensor:
    """Return the smallest float32 >= the float64 value, so that float32 comparisons decide as in float64."""
    nearest = value.float()
    above = torch.nextafter(nearest, torch.full_like(nearest, math.inf))
    return torch.where(nearest.double() < value, above, nearest)
