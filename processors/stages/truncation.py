"""The stages `top_k`, `top_p` and `min_p`: keep the best tokens, mask the rest.

Each computes a threshold and a room: tokens above the threshold are kept, and of those equal to it the `room`
lowest ids.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from processors.base import Columns, Processor
from processors.catalog import MinPParams, Phase, TopKParams, TopPParams
from processors.kernels.blocks import best_values, drop_below, row_parts
from processors.rows import Rows
from processors.stages.tokens import LOWEST

__all__ = ["MinP", "TopK", "TopP", "keep_above", "least_kept", "mass", "rounded_up"]

# Numbers of best tokens sorted on a CPU before the whole row. A GPU sorts the row at once: no
# synchronisation.
_RUNGS = (128, 16384)
_LOG2_E = math.log2(math.e)


class TopK(Processor[TopKParams]):
    """Keep exactly the k best tokens, of ties the lowest ids; `ties: keep` keeps all ties."""

    name = "top_k"
    phase = Phase.TRUNCATE
    Params = TopKParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Sorts no more than the largest k of the batch."""
        largest = max(self.columns.known("k", rows) | self.columns.known("keep", rows))
        ranked = _best(logits, largest)
        count = torch.maximum(self.columns.gather("k", rows), self.columns.gather("keep", rows))[:, None]
        threshold, room = _cut(ranked, count)
        keep_ties = self.columns.gather("ties", rows)[:, None] == 1  # cut 0, keep 1
        return drop_below(logits, threshold, torch.where(keep_ties, logits.shape[1], room))


class TopP(Processor[TopPParams]):
    """Keep the nucleus: the best tokens until their probabilities sum up to p (Holtzman et al. 2019).

    A token is kept if the mass before it is below p, so the one that crosses p is kept. With
    `boundary: exclusive` it is kept if the mass including it is at most p.
    """

    name = "top_p"
    phase = Phase.TRUNCATE
    Params = TopPParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Masses are float64."""
        width = logits.shape[1]
        rungs = [*_RUNGS, width] if logits.device.type == "cpu" and width > _RUNGS[-1] else [width]
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        ranked = _best(logits, rungs[0])
        wanted = _Nucleus(
            peak,
            bound=_total(logits, ranked, peak) * self.columns.exact("p", rows)[:, None],
            is_exclusive=self.columns.gather("boundary", rows)[:, None] == 1,  # inclusive 0, exclusive 1
            keep=self.columns.gather("keep", rows)[:, None],
        )
        return drop_below(logits, *_nucleus(logits, ranked, wanted, rungs[1:]))


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
    """Mask logits [A, V] below the threshold [A, 1], but not the `keep` best ones, a field of `columns`."""
    most = max(columns.known("keep", rows))
    if most == 1:
        return drop_below(logits, threshold)
    last, room = _cut(_best(logits, most), columns.gather("keep", rows)[:, None])
    room = torch.where(last < threshold, room, logits.shape[1])
    return drop_below(logits, torch.minimum(threshold, last), room)


class _Nucleus(NamedTuple):
    """Parameters of top-p for each row, all [A, 1]. Masses are relative to that of the best token."""

    peak: Tensor
    bound: Tensor
    is_exclusive: Tensor
    keep: Tensor


def _total(logits: Tensor, ranked: Tensor, peak: Tensor) -> Tensor:
    """Return the total mass of each row [A, 1], given its best values [A, N]."""
    total = mass(ranked, peak).sum(1, keepdim=True)
    if ranked.shape[1] < logits.shape[1]:
        at = (ranked[:, -1] > -math.inf).nonzero().squeeze(1)
        for part in row_parts(logits, len(at)):
            some = at[part]
            total[some] = mass(logits[some], peak[some]).sum(1, keepdim=True)
    return total


def _nucleus(logits: Tensor, ranked: Tensor, wanted: _Nucleus, rungs: list[int]) -> tuple[Tensor, Tensor]:
    """Return threshold and room [A, 1] of the nucleus. Rows that need more than `ranked` [A, N] sort more."""
    sums = mass(ranked, wanted.peak).cumsum(1)
    inclusive = (sums < wanted.bound).sum(1, keepdim=True) + 1
    exclusive = (sums <= wanted.bound).sum(1, keepdim=True)
    count = torch.where(wanted.is_exclusive, exclusive, inclusive).maximum(wanted.keep)
    threshold, room = _cut(ranked, count)
    if rungs:
        at = (count >= ranked.shape[1]).squeeze(1).nonzero().squeeze(1)
        if len(at):
            rest = _Nucleus(*(column[at] for column in wanted))
            some = logits[at]
            threshold[at], room[at] = _nucleus(some, _best(some, rungs[0]), rest, rungs[1:])
    return threshold, room


def mass(logits: Tensor, peak: Tensor) -> Tensor:
    """Return exp(logits - peak) in float64; exp2 takes a CPU a quarter of the time of exp."""
    return logits.double().sub_(peak).mul_(_LOG2_E).exp2_()


def _best(logits: Tensor, count: int) -> Tensor:
    """Return the largest values of each row, descending, [A, min(count, V)]."""
    return best_values(logits, min(count, logits.shape[1]))


def _cut(ranked: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the count-th best value, and the number of its ties among the first count; all [A, 1]."""
    count = count.clamp(max=ranked.shape[1])
    threshold = ranked.gather(1, count - 1)
    return threshold, count - (ranked > threshold).sum(1, keepdim=True)


def least_kept(peak: Tensor, p: Tensor) -> Tensor:
    """Return the smallest logit [A, 1] float32 that min-p keeps, for peak [A, 1] and p [A, 1] float64."""
    return rounded_up(peak.double() + p.log())


def rounded_up(value: Tensor) -> Tensor:
    """Return the smallest float32 >= the float64 value, so that comparisons decide as in float64."""
    nearest = value.float()
    above = torch.nextafter(nearest, torch.full_like(nearest, math.inf))
    return torch.where(nearest.double() < value, above, nearest)
