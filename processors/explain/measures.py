"""Measures of one row of logits, as Python numbers.

A row with few unmasked ids is measured on these ids alone. Each row is measured separately, so that the last
bits of a sum do not depend on other rows.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from processors.explain.view import Changed, Place, Weighed
from processors.kernels.blocks import best_values

__all__ = ["Snapshot", "best", "changed", "cut"]

_FEW = 8  # a row with at most one unmasked id in 8 is measured on its unmasked ids alone
_LOG2_E = math.log2(math.e)
_DECIMALS = 4  # decimals to which changes of logits are compared
_LEAST = -1100.0  # 2 ** _LEAST underflows to 0 in float64


class Snapshot:
    """A row of logits [V] between two stages. `ids` [N]: the unmasked ids, None if they are many.

    `values`: logits of `ids`, or of all ids. `before`: the row before the stage; only its unmasked ids are
    examined, because a masked id stays masked.
    """

    def __init__(self, logits: Tensor, before: Snapshot | None = None) -> None:
        self.logits = logits
        self.ids: Tensor | None = None if before is None else before.ids
        self.values = logits if self.ids is None else logits[self.ids]
        # Two rows for intermediate results: allocating them takes longer than computing them.
        self._room: Tensor = (
            logits.new_empty(2, len(logits), dtype=torch.float64) if before is None else before._room
        )
        is_left = self.values > -torch.inf
        self.alive = int(torch.count_nonzero(is_left))
        if self.alive < len(self.values) and self.alive * _FEW <= len(logits):
            at = is_left.nonzero().squeeze(1)
            self.ids = at if self.ids is None else self.ids[at]
            self.values = self.values[at]

    def is_same(self, other: Snapshot) -> bool:
        """Whether all logits equal those of `other`, the row one stage before or after."""
        return self.alive == other.alive and torch.equal(self.values, other.values)

    @cached_property
    def left(self) -> Tensor:
        """The unmasked ids [N]."""
        return (self.values > -torch.inf).nonzero().squeeze(1) if self.ids is None else self.ids

    @cached_property
    def _peak(self) -> float:
        return max(float(self.values.amax()), torch.finfo(torch.float32).min) if self.alive else 0.0

    @cached_property
    def _sums(self) -> tuple[float, float]:
        """Return the sum of the weights w, and the sum of w log2 w."""
        weights, logs = self._weights(), self._room[1, : len(self.values)]
        total = float(weights.sum()) or 1.0
        return total, float(logs.clamp_(min=_LEAST).mul_(weights).sum())

    def _weights(self) -> Tensor:
        """Return the probabilities of `values` relative to the largest one, valid until the next call."""
        weights, logs = self._room[:, : len(self.values)]
        logs.copy_(self.values).sub_(self._peak).mul_(_LOG2_E)
        return torch.exp2(logs, out=weights)

    @property
    def entropy(self) -> float:
        """Shannon entropy of the distribution, in nats."""
        total, spread = self._sums
        return max(0.0, math.log(total) - math.log(2) * spread / total)

    def mass(self, stays: Tensor) -> float:
        """Return the probability of the `values` with a set flag."""
        return min(1.0, float(self._weights().masked_fill_(~stays, 0).sum()) / self._sums[0])

    def p(self, logit: float) -> float:
        """Return the probability of an id with this logit."""
        return math.exp2((logit - self._peak) * _LOG2_E) / self._sums[0] if self.alive else 0.0

    def place(self, token: int, count: int) -> Place:
        """Return rank and probability of a token, and the `count` most likely ids."""
        top = self.weighed(*best(self.values, count))
        own = float(self.logits[token])
        return Place(
            p=self.p(own),
            rank=None if own == -math.inf else self._rank(token, own, top),
            logit=own,
            entropy=self.entropy,
            alive=self.alive,
            top=top,
            others=max(0.0, 1 - math.fsum(p for _, p in top)),
        )

    def weighed(self, at: Tensor, values: Tensor) -> tuple[Weighed, ...]:
        """Return ids and probabilities for indices into `values`; without ids of probability 0."""
        ids = at if self.ids is None else self.ids[at]
        pairs = zip(ids.tolist(), map(self.p, values.tolist()), strict=True)
        return tuple((token, p) for token, p in pairs if p > 0)

    def _rank(self, token: int, own: float, top: tuple[Weighed, ...]) -> int:
        """Return the rank of a token from 1: ids with a larger logit come first, ties by lowest id."""
        found = [rank for rank, (other, _) in enumerate(top, start=1) if other == token]
        if found:
            return found[0]
        before = int((self.ids < token).sum()) if self.ids is not None else token
        ties = torch.count_nonzero(self.values[:before] == own)
        return int(torch.count_nonzero(self.values > own) + ties) + 1


def best(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return indices and values of the `count` largest values above -inf, ties by lowest index."""
    count = min(count, len(values))
    if not count:
        return torch.empty(0, dtype=torch.int64), values[:0]
    least = best_values(values[None], count)[0, -1].clamp(min=torch.finfo(torch.float32).min)
    at = (values >= least).nonzero().squeeze(1)
    order = values[at].sort(descending=True, stable=True)
    return at[order.indices[:count]], order.values[:count]


def cut(before: Snapshot, after: Snapshot, count: int) -> tuple[tuple[Weighed, ...], float]:
    """Return the most likely ids that the stage masked, and the mass of the ids that it kept.

    Both refer to the probabilities before the stage.
    """
    if before.alive == after.alive:
        return (), 1.0
    stays = (after.logits if before.ids is None else after.logits[before.ids]) > -torch.inf
    gone = before.values.masked_fill(stays, -torch.inf)
    return before.weighed(*best(gone, count)), before.mass(stays)


def changed(before: Snapshot, after: Snapshot, count: int) -> tuple[Changed, ...]:
    """Return the unmasked ids whose logits changed most, with both logits.

    Among equal changes (up to rounding) the more likely id comes first.
    """
    ids = (before.logits != after.logits).nonzero().squeeze(1)
    old, new = before.logits[ids], after.logits[ids]
    by = torch.where(new > -torch.inf, (new - old).abs().round(decimals=_DECIMALS), -torch.inf)
    likely = old.sort(descending=True, stable=True).indices
    order = likely[by[likely].sort(descending=True, stable=True).indices]
    at = order[by[order] > -torch.inf][:count]
    return tuple(zip(ids[at].tolist(), old[at].tolist(), new[at].tolist(), strict=True))
