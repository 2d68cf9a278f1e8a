"""The threshold of each row by min-p, top-k and top-p: the least order that is kept.

Twin of cuts_triton, by a full sort. Masses are integers, so both find the same threshold.
"""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.choice.masses import masses
from processors.kernels.choice.parts import Control, Mark, goal_of, heat, orders_of, value_of

__all__ = ["cut_torch"]


def cut_torch(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least order that the stages keep and the number of kept logits, int64 [R] each."""
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
    below = (sums < goal_of(sums.gather(1, (early - 1).clamp(min=0)), controls)).sum(1, keepdim=True)
    nucleus = torch.where(controls[:, Control.EXCLUSIVE, None] > 0, below, below + 1)
    count = above.minimum(first).minimum(torch.where(p < 1, nucleus, finite)).clamp(min=1)
    least = orders.gather(1, (count - 1).clamp(max=logits.shape[1] - 1))
    return least[:, 0], count[:, 0]
