"""Truncation by the candidate list of each row, and the draw by Gumbel-max among what is kept.

Twin of listed_triton. Tokens are those of `Sampler` on the processed logits: the threshold is exact, and
noise depends on seed, position and id alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.choice.cuts import cut_torch
from processors.kernels.choice.masses import masses
from processors.kernels.choice.parts import (
    CAPACITY,
    OPEN,
    Control,
    Level,
    Mark,
    bin_of,
    cooled,
    heat,
    is_mass_listed,
    orders_of,
    value_of,
)
from processors.kernels.choice.patches import patched
from processors.kernels.operation import operation
from processors.sampler import PLAIN_LIMIT, gumbel_max

__all__ = ["draw_listed", "draw_listed_torch", "kept"]

_INT_MIN = torch.iinfo(torch.int64).min


def kept(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> Tensor:
    """Return a mask [R, V] bool of the logits that the stages keep."""
    return (orders_of(logits, controls, levels) >= marks[:, Mark.LEAST, None]) & (logits > -torch.inf)


def draw_listed_torch(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    facts: Tensor,
    marks: Tensor,
    lists: Tensor,
    seeds: Tensor,
    positions: Tensor,
    tokens: Tensor,
    is_window: bool,
    patches: Tensor | None = None,
) -> None:
    """As draw_listed, in PyTorch."""
    logits = patched(logits, patches)
    is_open, is_cut = tokens == OPEN, marks[:, Mark.IS_CUT] > 0
    if not is_window:
        marks[:, Mark.TOTAL] = torch.where(is_open, _total(logits, controls, levels, marks), 0)
    is_here = _candidates(logits, controls, levels, marks, is_window) & is_open[:, None]
    count = is_here.sum(1)
    is_decided = is_open & ~(is_cut & (count > CAPACITY))
    marks[:, Mark.COLLECTED] = torch.where(
        is_decided, count, torch.where(is_open, 0, marks[:, Mark.COLLECTED])
    )
    row, found = (is_here & is_decided[:, None]).nonzero(as_tuple=True)
    place = torch.arange(len(row), device=row.device) - (marks[:, Mark.COLLECTED].cumsum(0) - count)[row]
    lists[row, 0, place] = orders_of(logits, controls, levels)[row, found]
    lists[:, 1] = torch.where((is_open & ~is_decided)[:, None], 0, lists[:, 1])  # histogram bins
    least, left = cut_torch(logits, controls, levels, marks)
    is_new = is_decided & is_cut
    marks[:, Mark.LEAST] = torch.where(is_new, least, marks[:, Mark.LEAST])
    marks[:, Mark.COUNT] = torch.where(is_new, left, marks[:, Mark.COUNT])
    drawn = _drawn(logits, controls, levels, marks, seeds, positions)
    tokens.copy_(torch.where(is_decided, drawn, tokens))


def _total(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> Tensor:
    """Return the mass [R] int64 that top-p normalises by; 0 where top-k precedes it."""
    temperature = heat(controls, Control.HEAT_CUT)
    orders = orders_of(logits, controls, levels)
    is_late = controls[:, Control.IS_MIN_LATE] > 0
    least = torch.where(is_late, _INT_MIN, marks[:, Mark.MIN_P_LEAST])[:, None]
    weights = masses(value_of(orders >> 32), levels, temperature)
    sums = torch.where((orders >= least) & (logits > -torch.inf), weights, 0).sum(1)
    return torch.where((controls[:, Control.TOP_P] < 1) & ~is_mass_listed(controls), sums, 0)


def _candidates(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, is_window: bool) -> Tensor:
    """Return a mask [R, V] bool of the logits that enter the candidate list."""
    orders = orders_of(logits, controls, levels)
    is_here = (orders >= marks[:, Mark.FROM, None]) & (logits > -torch.inf)
    if not is_window:
        is_listed = (marks[:, Mark.IS_CUT] > 0) | (marks[:, Mark.COUNT] <= PLAIN_LIMIT)
        return is_here & is_listed[:, None]
    place = bin_of(value_of(orders >> 32), levels, heat(controls, Control.HEAT_CUT))
    is_here &= (place >= marks[:, Mark.FIRST_BIN, None]) & (place <= marks[:, Mark.LAST_BIN, None])
    return is_here & (marks[:, Mark.IN_BINS, None] <= CAPACITY)


def _drawn(
    logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, seeds: Tensor, positions: Tensor
) -> Tensor:
    """Return the token [R] of each row by Gumbel-max among the kept logits."""
    values = cooled(logits.float(), levels[:, Level.PEAK, None].float(), heat(controls, Control.HEAT_DRAW))
    values = values.masked_fill(~kept(logits, controls, levels, marks), -torch.inf)
    return gumbel_max(values, seeds, positions)


draw_listed = operation(
    "draw_listed(Tensor logits, Tensor controls, Tensor levels, Tensor(a!) facts, Tensor(b!) marks, "
    "Tensor(c!) lists, Tensor seeds, Tensor positions, Tensor(d!) tokens, bool is_window, "
    "Tensor? patches=None) -> ()",
    draw_listed_torch,
    "processors.kernels.choice.listed_triton:draw_listed_triton",
)
"""Choose the tokens [R] of open rows as `Sampler` does by Gumbel-max.

A truncated row lists its candidates; if they exceed CAPACITY, it stays open and its bins are zeroed for
find_window. A row without truncation lists all its logits if they are at most PLAIN_LIMIT. With `is_window`
open rows list the logits in their marked bins, and no row stays open.
"""
