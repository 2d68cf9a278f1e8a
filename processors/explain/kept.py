"""`KeptLogits`: the largest logits of a row and one bin for all others, enough to rerun chains on the row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["KeptLogits"]


@dataclass(frozen=True, slots=True, eq=False)
class KeptLogits:
    """The largest L of V logits: `ids` [L] int64 and `values` [L] float32.

    `rest` = log sum exp of the other V - L logits; -inf if all are masked or there is none. `seed`: seed of
    the row's draw.
    """

    ids: Tensor
    values: Tensor
    rest: float
    vocab_size: int
    seed: int

    @classmethod
    def of(cls, row: Tensor, count: int, seed: int) -> KeptLogits:
        """Keep the `count` largest of a row's logits [V], ties by lowest id."""
        size = len(row)
        if count >= size:
            return cls(torch.arange(size), row.to("cpu", torch.float32, copy=True), -math.inf, size, seed)
        values, ids = row.float().sort(descending=True, stable=True)
        rest = float(values[count:].double().logsumexp(0))
        return cls(ids[:count].to("cpu", copy=True), values[:count].to("cpu", copy=True), rest, size, seed)

    def rows(self) -> Tensor:
        """Return two rows of logits [2, V] with the kept values and the bin's probability on the other ids.

        Row 0 spreads the bin over all other ids, row 1 over as few as possible, as no id of the bin may
        exceed the smallest kept value. If both rows lead to the same token, the original row leads to it too.
        """
        rows = torch.full((2, self.vocab_size), -math.inf)
        others = torch.ones(self.vocab_size, dtype=torch.bool).index_fill_(0, self.ids, False).nonzero()[:, 0]
        if len(others) and self.rest > -math.inf:
            rows[0, others] = self.rest - math.log(len(others))
            least = float(self.values[-1])
            full = min(len(others) - 1, int(math.exp(min(self.rest - least, 60.0))))
            rows[1, others[:full]] = least
            left = math.exp(self.rest - least) - full
            rows[1, others[full]] = least + math.log(left) if left > 0 else -math.inf
        rows[:, self.ids] = self.values
        return rows
