"""A histogram of each row, and which of its bins hold the end of what the stages keep.

Counts and masses are integers, so that their sums do not depend on the order in which they are added.
"""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.choice.parts import (
    CAPACITY,
    NUM_BINS,
    Control,
    Level,
    Mark,
    bin_of,
    cooled,
    heat,
    is_mass_listed,
    masses,
    order,
    value_of,
)
from processors.kernels.operation import operation

__all__ = ["fill_bins", "fill_bins_torch", "find_window", "find_window_torch"]

_INT_MIN = torch.iinfo(torch.int64).min


def fill_bins_torch(
    logits: Tensor, controls: Tensor, levels: Tensor, facts: Tensor, marks: Tensor, bins: Tensor
) -> None:
    """As fill_bins, in PyTorch."""
    temperature = heat(controls, Control.HEAT_CUT)
    values = cooled(logits.float(), levels[:, Level.PEAK, None].float(), temperature)
    orders = order(values, torch.arange(logits.shape[1], device=logits.device))
    is_cut = (marks[:, Mark.IS_CUT, None] > 0) & (values > -torch.inf)
    weighs = (controls[:, Control.TOP_P] < 1) & ~is_mass_listed(controls)
    weights = torch.where(is_cut & weighs[:, None], masses(values, levels, temperature), 0)
    is_late = controls[:, Control.IS_MIN_LATE] > 0
    least = torch.where(is_late, _INT_MIN, marks[:, Mark.MIN_P_LEAST])[:, None]
    marks[:, Mark.TOTAL] += torch.where(orders >= least, weights, 0).sum(1)
    is_candidate = is_cut & (orders >= marks[:, Mark.FROM, None])
    place = bin_of(values, levels, temperature)
    bins[:, 0].scatter_add_(1, place, is_candidate.long())
    bins[:, 1].scatter_add_(1, place, torch.where(is_candidate, weights, 0))


def find_window_torch(bins: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> None:
    """As find_window, in PyTorch."""
    counts, sums = bins.cumsum(2).unbind(1)
    k, p = controls[:, Control.TOP_K, None], controls[:, Control.TOP_P, None]
    is_listed = is_mass_listed(controls)[:, None]
    is_min_last = (controls[:, Control.IS_MIN_LATE, None] > 0) & is_listed
    goal = marks[:, Mark.TOTAL, None].double() * p
    is_exclusive = controls[:, Control.EXCLUSIVE, None] > 0
    is_reached = torch.where(is_exclusive, sums.double() > goal, sums.double() >= goal)
    value = value_of(marks[:, Mark.MIN_P_LEAST, None] >> 32)
    of_min_p = bin_of(value, levels, heat(controls, Control.HEAT_CUT))
    ends = torch.stack(
        [
            torch.where(k > 0, _first(counts >= k), NUM_BINS - 1),
            torch.where((p < 1) & ~is_listed, _first(is_reached), NUM_BINS - 1),
            torch.where((controls[:, Control.MIN_P, None] > 0) & ~is_min_last, of_min_p, NUM_BINS - 1),
        ]
    )
    last = torch.where(counts[:, -1:] <= CAPACITY, NUM_BINS - 1, ends.amin(0))
    count, inside = counts.gather(1, last), bins[:, 0].gather(1, last)
    is_narrow = (count > CAPACITY) & ~is_listed & (inside <= CAPACITY)
    before = torch.where(is_narrow, count - inside, 0)
    mass = torch.where(is_narrow, sums.gather(1, last) - bins[:, 1].gather(1, last), 0)
    marks[:, Mark.FIRST_BIN] = torch.where(is_narrow, last, 0)[:, 0]
    marks[:, Mark.LAST_BIN], marks[:, Mark.IN_BINS] = last[:, 0], (count - before)[:, 0]
    marks[:, Mark.COUNT_BEFORE], marks[:, Mark.MASS_BEFORE] = before[:, 0], mass[:, 0]


def _first(found: Tensor) -> Tensor:
    """Return the first True of each row [R, 1]; the last place without one."""
    return torch.where(found.any(1), found.int().argmax(1), found.shape[1] - 1)[:, None]


fill_bins = operation(
    "fill_bins(Tensor logits, Tensor controls, Tensor levels, Tensor facts, Tensor(a!) marks, "
    "Tensor(b!) bins) -> ()",
    fill_bins_torch,
    "processors.kernels.choice.bins_triton:fill_bins_triton",
)
"""Count the candidates of each row in bins [R, 2, NUM_BINS], and sum their masses and the TOTAL."""

find_window = operation(
    "find_window(Tensor bins, Tensor controls, Tensor levels, Tensor(a!) marks) -> ()",
    find_window_torch,
    "processors.kernels.choice.bins_triton:find_window_triton",
)
"""Mark the bins of each row that decide its cut: if they fit a list, all up to the end of what is kept."""
