"""Measures of one row of logits, as plain numbers.

A row of which few ids are left is measured by these alone. Each row is measured by itself, so that the last
bits of a sum do not depend on the rows beside it.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from processors.explain.view import Changed, Place, Weighed
from processors.kernels.blocks import best_values

__all__ = ["Snapshot", "best", "changed", "cut"]

_FEW = 8  # a row of which at most one id in 8 is left is looked at through those that are left
_LOG2_E = math.log2(math.e)
_DECIMALS = 4  # of changes of logits that are compared
_LEAST = -1100.0  # 2 ** _LEAST is 0 in float64


class Snapshot:
    """A row of logits [V] between two stages. `ids` [N] are those that are left, None if they are many.

    `values` are their logits, or all logits. With `before`, the row before the stage, only ids that were left
    there are looked at: a masked id stays masked.
    """

    def __init__(self, logits: Tensor, before: Snapshot | None = None) -> None:
        self.logits = logits
        self.ids: Tensor | None = None if before is None else before.ids
        self.values = logits if self.ids is None else logits[self.ids]
        # Two rows for intermediate results: to allocate them takes longer than to compute them.
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
        """Whether no logit differs from `other`, a row after or before this one."""
        return self.alive == other.alive and torch.equal(self.values, other.values)

    @cached_property
    def left(self) -> Tensor:
        """The ids [N] that are left."""
        return (self.values > -torch.inf).nonzero().squeeze(1) if self.ids is None else self.ids

    @cached_property
    def _peak(self) -> float:
        return max(float(self.values.amax()), torch.finfo(torch.float32).min) if self.alive else 0.0

    @cached_property
    def _sums(self) -> tuple[float, float]:
        """Sum of the weights, and of each times its logarithm to the base of 2."""
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
        """Return the probability of the flagged `values`."""
        return min(1.0, float(self._weights().masked_fill_(~stays, 0).sum()) / self._sums[0])

    def p(self, logit: float) -> float:
        """Return the probability of an id with this logit."""
        return math.exp2((logit - self._peak) * _LOG2_E) / self._sums[0] if self.alive else 0.0

    def place(self, token: int, count: int) -> Place:
        """Return where a token stands, with the `count` most likely ids."""
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
        """Return the ids at these places of `values`, with their probabilities, if these are above 0."""
        ids = at if self.ids is None else self.ids[at]
        pairs = zip(ids.tolist(), map(self.p, values.tolist()), strict=True)
        return tuple((token, p) for token, p in pairs if p > 0)

    def _rank(self, token: int, own: float, top: tuple[Weighed, ...]) -> int:
        """Return how many ids are more likely, and 1; of equal ones the lower is."""
        found = [rank for rank, (other, _) in enumerate(top, start=1) if other == token]
        if found:
            return found[0]
        before = int((self.ids < token).sum()) if self.ids is not None else token
        ties = torch.count_nonzero(self.values[:before] == own)
        return int(torch.count_nonzero(self.values > own) + ties) + 1


def best(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return places and values of the `count` largest that are not -inf, of equal ones the first."""
    count = min(count, len(values))
    if not count:
        return torch.empty(0, dtype=torch.int64), values[:0]
    least = best_values(values[None], count)[0, -1].clamp(min=torch.finfo(torch.float32).min)
    at = (values >= least).nonzero().squeeze(1)
    order = values[at].sort(descending=True, stable=True)
    return at[order.indices[:count]], order.values[:count]


def cut(before: Snapshot, after: Snapshot, count: int) -> tuple[tuple[Weighed, ...], float]:
    """Return the most likely ids that are left before and not after, and the probability of those left after.

    Both by the probabilities before.
    """
    if before.alive == after.alive:
        return (), 1.0
    stays = (after.logits if before.ids is None else after.logits[before.ids]) > -torch.inf
    gone = before.values.masked_fill(stays, -torch.inf)
    return before.weighed(*best(gone, count)), before.mass(stays)


def changed(before: Snapshot, after: Snapshot, count: int) -> tuple[Changed, ...]:
    """Return the ids whose logits changed most and are not masked, with both logits.

    Of those that changed as much, but for rounding, the likelier come first.
    """
    ids = (before.logits != after.logits).nonzero().squeeze(1)
    old, new = before.logits[ids], after.logits[ids]
    by = torch.where(new > -torch.inf, (new - old).abs().round(decimals=_DECIMALS), -torch.inf)
    likely = old.sort(descending=True, stable=True).indices
    order = likely[by[likely].sort(descending=True, stable=True).indices]
    at = order[by[order] > -torch.inf][:count]
    return tuple(zip(ids[at].tolist(), old[at].tolist(), new[at].tolist(), strict=True))
