"""What follows for a row from the facts of its blocks: its largest logit, and where its cut may lie."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.choice.parts import (
    NUM_BINS,
    Control,
    Fact,
    Level,
    Mark,
    cooled,
    first_order,
    heat,
)
from processors.kernels.operation import operation
from processors.sampler import EMPTY, NON_FINITE
from processors.stages.tokens import LOWEST
from processors.stages.truncation import least_kept

__all__ = ["REACH", "row_facts", "row_facts_torch"]

REACH = 40.0  # the bins reach at most so far below the largest logit; the last has all others
_NEAR = 1e-30  # and at least so far
_MASS_BITS = 59  # of the integer that stands for the mass of a row
_INT_MIN = torch.iinfo(torch.int64).min


def row_facts_torch(facts: Tensor, controls: Tensor, cuts: bool) -> tuple[Tensor, Tensor, Tensor]:
    """As row_facts, in PyTorch."""
    rows, device = len(facts), facts.device
    peak = facts[:, Fact.TOP].amax(1)
    levels = torch.zeros(rows, len(Level), dtype=torch.float64, device=device)
    marks = torch.zeros(rows, len(Mark), dtype=torch.int64, device=device)
    bins = torch.zeros(rows, 2, NUM_BINS if cuts else 0, dtype=torch.int64, device=device)
    levels[:, Level.PEAK] = peak
    marks[:, Mark.FAULT] = torch.where(
        peak == -torch.inf, EMPTY, torch.where(peak < torch.inf, 0, NON_FINITE)
    )
    marks[:, Mark.LEAST], marks[:, Mark.COUNT] = _INT_MIN, facts[:, Fact.FINITE].long().sum(1)
    if cuts:
        is_sound = (marks[:, Mark.FAULT] == 0) & (controls[:, Control.GREEDY] == 0)
        is_cut = (controls[:, Control.MIN_P] > 0) | (controls[:, Control.TOP_K] > 0)
        is_cut |= controls[:, Control.TOP_P] < 1
        marks[:, Mark.IS_CUT] = is_cut & is_sound
        _set_bounds(facts, controls, levels, marks)
    return levels, marks, bins


def _set_bounds(facts: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> None:
    """Set where candidates begin, the bins over them, and the unit of masses."""
    temperature = heat(controls, Control.HEAT_CUT)
    peak = levels[:, Level.PEAK, None].float().clamp(min=LOWEST)
    top = torch.where(temperature > 0, 0, peak)
    tops = cooled(facts[:, Fact.TOP], peak, temperature)
    mass = ((tops - top).exp() * facts[:, Fact.SUM]).sum(1, keepdim=True)
    min_p, k, p = (controls[:, one, None] for one in (Control.MIN_P, Control.TOP_K, Control.TOP_P))
    is_k_first = (k > 0) & (controls[:, Control.IS_K_LATE, None] == 0)
    is_min_first = (min_p > 0) & (controls[:, Control.IS_MIN_LATE, None] == 0)
    is_mass_listed = is_k_first & (p < 1)
    # All that min-p keeps is at least this.
    least = torch.where(min_p > 0, least_kept(top, min_p), -torch.inf)
    from_min_p = torch.where(is_mass_listed & ~is_min_first, -torch.inf, least)
    # Of k blocks each has a logit that is at least the k-th largest of the blocks' largest.
    ranked = tops.sort(1, descending=True).values
    place = (k.long() - 1).clamp(0, tops.shape[1] - 1)
    from_k = torch.where((k > 0) & (k <= tops.shape[1]), ranked.gather(1, place), -torch.inf)
    # What is less likely than this has a mass of less than 1 - p in all.
    known = torch.where(is_k_first | is_min_first, 1, mass.double() * 0.999)
    count = marks[:, Mark.COUNT, None].clamp(min=1)
    from_p = (top.double() + ((1 - p) * 0.5 * known / count).log()).float()
    from_p = torch.where((p < 1) & ~is_mass_listed, from_p, -torch.inf)
    begin = torch.maximum(from_min_p, torch.maximum(from_k, from_p))
    marks[:, Mark.FROM] = first_order(begin)[:, 0]
    marks[:, Mark.MIN_P_LEAST] = torch.where(min_p > 0, first_order(least), _INT_MIN)[:, 0]
    low = cooled(facts[:, Fact.LOW].amin(1, keepdim=True), peak, temperature)
    reach = (top - torch.maximum(begin, low)).clamp(max=REACH).clamp(min=_NEAR)
    levels[:, Level.PER_UNIT] = (NUM_BINS / reach)[:, 0].double()
    levels[:, Level.UNIT] = (_MASS_BITS - mass.log2()).floor().double().exp2()[:, 0]


row_facts = operation(
    "row_facts(Tensor facts, Tensor controls, bool cuts) -> (Tensor, Tensor, Tensor)",
    row_facts_torch,
    "processors.kernels.choice.rows_triton:row_facts_triton",
)
"""Levels [R, L], marks [R, M] and, where some row `cuts`, empty bins [R, 2, NUM_BINS] int64 for them."""
