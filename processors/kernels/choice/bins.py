"""Histogram of the candidates of rows that no candidate list holds, and the bins around the threshold.

Twin of bins_triton. A bin is a range of logits; it has the count and the mass of its candidates. The
cumulative sums tell the last bin with kept logits; the logits up to it, or of it alone, are listed. Counts
and masses are integers, so both implementations have the same bins.
"""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.choice.masses import masses
from processors.kernels.choice.parts import (
    CAPACITY,
    NUM_BINS,
    OPEN,
    Control,
    Level,
    Mark,
    bin_of,
    cooled,
    goal_of,
    heat,
    is_mass_listed,
    order,
    value_of,
)
from processors.kernels.choice.patches import patched
from processors.kernels.operation import operation

__all__ = ["find_window", "find_window_torch"]


def find_window_torch(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    facts: Tensor,
    marks: Tensor,
    lists: Tensor,
    tokens: Tensor,
    patches: Tensor | None = None,
) -> None:
    """As find_window, in PyTorch."""
    logits = patched(logits, patches)
    is_open = tokens == OPEN
    bins = lists[:, 1].view(len(lists), 2, NUM_BINS)
    _fill(logits, controls, levels, marks, bins, is_open)
    found = _window(bins, controls, levels, marks)
    for mark, values in found.items():
        marks[:, mark] = torch.where(is_open, values[:, 0], marks[:, mark])


def _fill(
    logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, bins: Tensor, is_open: Tensor
) -> None:
    """Add the candidates of open rows to bins [R, 2, NUM_BINS]: their counts, and their masses."""
    temperature = heat(controls, Control.HEAT_CUT)
    values = cooled(logits.float(), levels[:, Level.PEAK, None].float(), temperature)
    orders = order(values, torch.arange(logits.shape[1], device=logits.device))
    is_candidate = is_open[:, None] & (values > -torch.inf) & (orders >= marks[:, Mark.FROM, None])
    weighs = is_candidate & ((controls[:, Control.TOP_P] < 1) & ~is_mass_listed(controls))[:, None]
    place = bin_of(values, levels, temperature)
    bins[:, 0].scatter_add_(1, place, is_candidate.long())
    bins[:, 1].scatter_add_(1, place, torch.where(weighs, masses(values, levels, temperature), 0))


def _window(bins: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> dict[Mark, Tensor]:
    """Return the marks [R, 1] that tell which bins are listed, and the count and mass before them."""
    counts, sums = bins.cumsum(2).unbind(1)
    k, p = controls[:, Control.TOP_K, None], controls[:, Control.TOP_P, None]
    is_listed = is_mass_listed(controls)[:, None]
    is_min_last = (controls[:, Control.IS_MIN_LATE, None] > 0) & is_listed
    is_reached = sums >= goal_of(marks[:, Mark.TOTAL, None], controls)
    value = value_of(marks[:, Mark.MIN_P_LEAST, None] >> 32)
    of_min_p = bin_of(value, levels, heat(controls, Control.HEAT_CUT))
    ends = torch.stack(
        [
            torch.where(k > 0, _first(counts >= k), NUM_BINS - 1),
            torch.where((p < 1) & ~is_listed, _first(is_reached), NUM_BINS - 1),
            torch.where((controls[:, Control.MIN_P, None] > 0) & ~is_min_last, of_min_p, NUM_BINS - 1),
        ]
    )
    last = ends.amin(0)
    count, inside = counts.gather(1, last), bins[:, 0].gather(1, last)
    is_narrow = (count > CAPACITY) & ~is_listed & (inside <= CAPACITY)
    before = torch.where(is_narrow, count - inside, 0)
    return {
        Mark.FIRST_BIN: torch.where(is_narrow, last, 0),
        Mark.LAST_BIN: last,
        Mark.COUNT_BEFORE: before,
        Mark.MASS_BEFORE: torch.where(is_narrow, sums.gather(1, last) - bins[:, 1].gather(1, last), 0),
        Mark.IN_BINS: count - before,
    }


def _first(found: Tensor) -> Tensor:
    """Return the index [R, 1] of the first True of each row; the last index if there is none."""
    return torch.where(found.any(1), found.int().argmax(1), found.shape[1] - 1)[:, None]


find_window = operation(
    "find_window(Tensor logits, Tensor controls, Tensor levels, Tensor facts, Tensor(a!) marks, "
    "Tensor(b!) lists, Tensor tokens, Tensor? patches=None) -> ()",
    find_window_torch,
    "processors.kernels.choice.bins_triton:find_window_triton",
)
"""Set FIRST_BIN, LAST_BIN, COUNT_BEFORE, MASS_BEFORE and IN_BINS of each open row.

No logit beyond LAST_BIN is kept. FIRST_BIN equals LAST_BIN where a list holds that bin but not all up to it,
unless top-p normalises by what top-k keeps; else FIRST_BIN is 0.
"""
