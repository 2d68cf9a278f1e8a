"""Stages that keep the best tokens and mask the rest: top-k, top-p, min-p.

All of them come down to a threshold: tokens above it stay, and of those that equal it the lowest ids, as
many as there is room for.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from processors.base import Processor
from processors.catalog import MinPParams, Phase, TopKParams, TopPParams
from processors.rows import Rows
from processors.stages.numbers import LOWEST

__all__ = ["MinP", "TopK", "TopP"]


class TopK(Processor[TopKParams]):
    """Keep exactly the k best tokens, of equal ones the lowest ids; `ties: keep` keeps all equal ones."""

    name = "top_k"
    phase = Phase.TRUNCATE
    Params = TopKParams

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V]. Sorts no more than the largest k of the batch."""
        largest = max(self.columns.known("k", rows) | self.columns.known("keep", rows))
        ranked = _best(logits, largest)
        count = torch.maximum(self.columns.gather("k", rows), self.columns.gather("keep", rows))[:, None]
        threshold, room = _cut(ranked, count)
        keep_ties = self.columns.gather("ties", rows)[:, None] == 1  # cut 0, keep 1
        return _drop(logits, threshold, torch.where(keep_ties, logits.shape[1], room))


class TopP(Processor[TopPParams]):
    """Keep the best tokens until their mass reaches p (Holtzman et al. 2019, nucleus sampling).

    A token stays while the mass before it is below p, so the one that crosses p stays; with
    `boundary: exclusive` a token stays while the mass up to and with it is at most p.
    """

    name = "top_p"
    phase = Phase.TRUNCATE
    Params = TopPParams

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V]. Masses are float64."""
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        total = logits.double().sub_(peak).exp_().sum(1, keepdim=True)
        bound = total * self.columns.gather("p", rows)[:, None]
        ranked = _best(logits, logits.shape[1])
        mass = ranked.double().sub_(peak).exp_().cumsum(1)
        inclusive = (mass < bound).sum(1, keepdim=True) + 1
        exclusive = (mass <= bound).sum(1, keepdim=True)
        is_exclusive = self.columns.gather("boundary", rows)[:, None] == 1  # inclusive 0, exclusive 1
        count = torch.where(is_exclusive, exclusive, inclusive)
        count = torch.maximum(count, self.columns.gather("keep", rows)[:, None])
        return _drop(logits, *_cut(ranked, count))


class MinP(Processor[MinPParams]):
    """Keep tokens at least p times as likely as the most likely one (Nguyen et al. 2024).

    In the log domain: logit >= max + ln p, so p = 1 keeps exactly the ties with the maximum.
    """

    name = "min_p"
    phase = Phase.TRUNCATE
    Params = MinPParams

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Logits [A, V]. Sorts only where some row keeps more than one token whatever happens."""
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        threshold = _rounded_up(peak.double() + self.columns.gather("p", rows)[:, None].log())
        most = max(self.columns.known("keep", rows))
        if most == 1:
            return logits.masked_fill_(logits < threshold, -math.inf)
        last, room = _cut(_best(logits, most), self.columns.gather("keep", rows)[:, None])
        room = torch.where(last < threshold, room, logits.shape[1])
        return _drop(logits, torch.minimum(threshold, last), room)


def _best(logits: Tensor, count: int) -> Tensor:
    """The largest values of each row in descending order [A, min(count, V)]."""
    width = logits.shape[1]
    if count < width:
        return logits.topk(count, dim=1).values
    return logits.sort(dim=1, descending=True).values


def _cut(ranked: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Value of the count-th best, and how many tokens of that value are among the first count; all [A, 1]."""
    count = count.clamp(max=ranked.shape[1])
    threshold = ranked.gather(1, count - 1)
    return threshold, count - (ranked > threshold).sum(1, keepdim=True)


def _drop(logits: Tensor, threshold: Tensor, room: Tensor) -> Tensor:
    """Mask what is below the threshold [A, 1], and the tokens equal to it beyond the first `room` ids."""
    tied = logits == threshold
    surplus = tied.cumsum(1, dtype=torch.int32) > room
    return logits.masked_fill_((logits < threshold) | (tied & surplus), -math.inf)


def _rounded_up(value: Tensor) -> Tensor:
    """The smallest float32 that is not below the float64 value, so that >= decides as in float64."""
    nearest = value.float()
    above = torch.nextafter(nearest, torch.full_like(nearest, math.inf))
    return torch.where(nearest.double() < value, above, nearest)
