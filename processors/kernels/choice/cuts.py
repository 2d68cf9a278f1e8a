"""The cut of each row: the order from which its logits are kept, by min-p, top-k and top-p."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.choice.parts import (
    CAPACITY,
    Control,
    Mark,
    bin_of,
    heat,
    masses,
    orders_of,
    value_of,
)
from processors.kernels.operation import operation

__all__ = ["collect", "collect_torch", "cut", "cut_torch"]

_INT_MIN = torch.iinfo(torch.int64).min


def collect_torch(logits: Tensor, controls: Tensor, levels: Tensor, facts: Tensor, marks: Tensor) -> Tensor:
    """As collect, in PyTorch."""
    listed = torch.zeros(len(logits), CAPACITY, dtype=torch.int64, device=logits.device)
    temperature = heat(controls, Control.HEAT_CUT)
    orders = orders_of(logits, controls, levels)
    place = bin_of(value_of(orders >> 32), levels, temperature)
    is_cut = (marks[:, Mark.IS_CUT] > 0) & (marks[:, Mark.IN_BINS] <= CAPACITY)
    is_here = (place >= marks[:, Mark.FIRST_BIN, None]) & (place <= marks[:, Mark.LAST_BIN, None])
    is_here &= (orders >= marks[:, Mark.FROM, None]) & (logits > -torch.inf) & is_cut[:, None]
    row, found = is_here.nonzero(as_tuple=True)
    counts = row.bincount(minlength=len(logits))
    listed[row, torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]] = orders[
        row, found
    ]
    marks[:, Mark.COLLECTED] = counts
    return listed


def cut_torch(logits: Tensor, controls: Tensor, levels: Tensor, listed: Tensor, marks: Tensor) -> None:
    """As cut, in PyTorch: by sorting all logits."""
    orders = orders_of(logits, controls, levels).sort(1, descending=True).values
    temperature = heat(controls, Control.HEAT_CUT)
    finite = (logits > -torch.inf).sum(1, keepdim=True)
    place = torch.arange(logits.shape[1], device=logits.device)
    weights = torch.where(place < finite, masses(value_of(orders >> 32), levels, temperature), 0)
    min_p, k, p = (controls[:, one, None] for one in (Control.MIN_P, Control.TOP_K, Control.TOP_P))
    above = torch.where(min_p > 0, (orders >= marks[:, Mark.MIN_P_LEAST, None]).sum(1, keepdim=True), finite)
    last = orders.gather(1, (k.long() - 1).clamp(0, logits.shape[1] - 1))
    tied = ((orders >> 32) >= (last >> 32)).sum(1, keepdim=True).minimum(finite)
    most = torch.where(controls[:, Control.KEEP_TIES, None] > 0, tied.maximum(k.long()), k.long())
    first = torch.where(k > 0, most.minimum(finite), finite)
    is_min_late, is_k_late = (controls[:, one, None] > 0 for one in (Control.IS_MIN_LATE, Control.IS_K_LATE))
    early = torch.where(is_min_late, finite, above).minimum(torch.where(is_k_late, finite, first))
    sums = weights.cumsum(1)
    goal = sums.gather(1, (early - 1).clamp(min=0)).double() * p
    crossed = (sums.double() < goal).sum(1, keepdim=True) + 1
    within = (sums.double() <= goal).sum(1, keepdim=True)
    nucleus = torch.where(controls[:, Control.EXCLUSIVE, None] > 0, within, crossed)
    count = above.minimum(first).minimum(torch.where(p < 1, nucleus, finite)).clamp(min=1)
    least = orders.gather(1, (count - 1).clamp(max=logits.shape[1] - 1))
    is_cut = marks[:, Mark.IS_CUT] > 0
    marks[:, Mark.LEAST] = torch.where(is_cut, least[:, 0], marks[:, Mark.LEAST])
    marks[:, Mark.COUNT] = torch.where(is_cut, count[:, 0], marks[:, Mark.COUNT])


collect = operation(
    "collect(Tensor logits, Tensor controls, Tensor levels, Tensor facts, Tensor(a!) marks) -> Tensor",
    collect_torch,
    "processors.kernels.choice.cuts_triton:collect_triton",
)
"""The orders [R, CAPACITY] int64 of the logits in the marked bins, as they come; none if too many."""

cut = operation(
    "cut(Tensor logits, Tensor controls, Tensor levels, Tensor listed, Tensor(a!) marks) -> ()",
    cut_torch,
    "processors.kernels.choice.cuts_triton:cut_triton",
)
"""Mark the order from which the stages keep logits, and how many these are, in rows that they truncate."""
