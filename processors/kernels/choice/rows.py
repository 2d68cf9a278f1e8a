"""Thresholds of each row from the facts of its blocks, and the token of greedy and failed rows.

Twin of rows_triton. The maxima, sums and counts of blocks bound what min-p, top-k and top-p can keep, so that
later kernels read only the blocks with candidates. A bound below the exact threshold only adds candidates;
the token does not depend on it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.choice.facts import block_facts_torch
from processors.kernels.choice.masses import MOST_BITS
from processors.kernels.choice.parts import (
    NUM_BINS,
    OPEN,
    Control,
    Fact,
    Level,
    Mark,
    cooled,
    first_order,
    heat,
    key_of,
    value_of,
)
from processors.kernels.choice.patches import patched
from processors.kernels.operation import operation
from processors.sampler import EMPTY, NON_FINITE
from processors.stages.tokens import LOWEST
from processors.stages.truncation import least_kept

__all__ = ["REACH", "TAME", "VAST", "all_facts", "all_facts_torch", "row_facts_torch"]

REACH = 40.0  # largest span of the histogram below the maximum logit; the last bin has the rest
TAME, VAST = 2.0**-20, 2.0**60  # bounds within which a quotient neither overflows nor is denormal
_NEAR = 1e-30  # least span of the histogram
_INT_MIN = torch.iinfo(torch.int64).min


def all_facts_torch(
    logits: Tensor, controls: Tensor, cuts: bool, patches: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As all_facts, in PyTorch."""
    logits = patched(logits, patches)
    facts = block_facts_torch(logits, controls)
    return facts, *row_facts_torch(logits, facts, controls, cuts)


def row_facts_torch(
    logits: Tensor, facts: Tensor, controls: Tensor, cuts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return levels [R, L], marks [R, M] and tokens [R] from facts [R, 4, B]; OPEN for rows that sample."""
    rows, device = len(facts), facts.device
    peak = facts[:, Fact.TOP].amax(1)
    levels = torch.zeros(rows, len(Level), dtype=torch.float64, device=device)
    marks = torch.zeros(rows, len(Mark), dtype=torch.int64, device=device)
    levels[:, Level.PEAK] = peak
    marks[:, Mark.FAULT] = torch.where(
        peak == -torch.inf, EMPTY, torch.where(peak < torch.inf, 0, NON_FINITE)
    )
    marks[:, Mark.LEAST], marks[:, Mark.COUNT] = _INT_MIN, facts[:, Fact.FINITE].long().sum(1)
    is_greedy, is_sound = controls[:, Control.GREEDY] > 0, marks[:, Mark.FAULT] == 0
    if cuts:
        is_cut = (controls[:, Control.MIN_P] > 0) | (controls[:, Control.TOP_K] > 0)
        is_cut |= controls[:, Control.TOP_P] < 1
        marks[:, Mark.IS_CUT] = is_cut & is_sound & ~is_greedy
        _set_bounds(facts, controls, levels, marks)
    marks[:, Mark.FROM] = torch.where(marks[:, Mark.IS_CUT] > 0, marks[:, Mark.FROM], _INT_MIN)
    first = (logits.float() == peak[:, None]).int().argmax(1)
    return levels, marks, torch.where(is_sound, torch.where(is_greedy, first, OPEN), marks[:, Mark.FAULT])


def _set_bounds(facts: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> None:
    """Set the least order of candidates, the scale of the histogram over them, and the unit of masses."""
    temperature = heat(controls, Control.HEAT_CUT)
    peak = levels[:, Level.PEAK, None].float().clamp(min=LOWEST)
    top = torch.where(temperature > 0, 0, peak)
    tops = cooled(facts[:, Fact.TOP], peak, temperature)
    mass = ((tops - top).exp() * facts[:, Fact.SUM]).sum(1, keepdim=True)
    min_p, k, p = (controls[:, one, None] for one in (Control.MIN_P, Control.TOP_K, Control.TOP_P))
    is_k_first = (k > 0) & (controls[:, Control.IS_K_LATE, None] == 0)
    is_min_first = (min_p > 0) & (controls[:, Control.IS_MIN_LATE, None] == 0)
    is_mass_listed = is_k_first & (p < 1)
    # The exact threshold of min-p: top + log(min_p).
    least = torch.where(min_p > 0, least_kept(top, min_p), -torch.inf)
    from_min_p = torch.where(is_mass_listed & ~is_min_first, -torch.inf, least)
    # The k-th largest block maximum bounds the k-th largest logit from below: k blocks reach it. Rounding
    # its key down to 16 bits keeps the bound, and halves the kernel's search.
    ranked = key_of(tops).sort(1, descending=True).values
    kth = ranked.gather(1, (k.long() - 1).clamp(0, tops.shape[1] - 1)) >> 16 << 16
    kth = value_of(kth.maximum(key_of(torch.full_like(top, -torch.inf))))
    from_k = torch.where((k > 0) & (k <= tops.shape[1]), kth, -torch.inf)
    # All logits below from_p together have less than 1 - p of the mass, so top-p drops them.
    known = torch.where(is_k_first | is_min_first, 1, mass.double() * 0.999)
    count = marks[:, Mark.COUNT, None].clamp(min=1)
    from_p = (top.double() + ((1 - p) * 0.5 * known / count).log()).float()
    from_p = torch.where((p < 1) & ~is_mass_listed, from_p, -torch.inf)
    begin = torch.maximum(from_min_p, torch.maximum(from_k, from_p))
    marks[:, Mark.FROM] = first_order(begin)[:, 0]
    marks[:, Mark.MIN_P_LEAST] = torch.where(min_p > 0, first_order(least), _INT_MIN)[:, 0]
    lowest = facts[:, Fact.LOW].amin(1, keepdim=True)
    is_tame = (peak.abs() >= TAME) & (peak.abs() <= VAST) & (lowest >= -VAST)
    is_tame &= (temperature >= TAME) & (temperature <= 1 / TAME)
    levels[:, Level.RATE] = torch.where(is_tame, 1 / temperature, 0)[:, 0].double()
    low = cooled(lowest, peak, temperature)
    reach = (top - torch.maximum(begin, low)).clamp(max=REACH).clamp(min=_NEAR)
    levels[:, Level.PER_UNIT] = (NUM_BINS / reach)[:, 0].double()
    levels[:, Level.UNIT] = MOST_BITS - mass.frexp().exponent[:, 0].double()


all_facts = operation(
    "all_facts(Tensor logits, Tensor controls, bool cuts, Tensor? patches=None) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    all_facts_torch,
    "processors.kernels.choice.facts_triton:all_facts_triton",
)
"""Facts [R, 4, B] of logits [R, V] with their patches, levels [R, L], marks [R, M] and tokens [R].

A greedy row has its token, a failed row its fault (EMPTY, NON_FINITE), any other row OPEN. `cuts`: some row
is truncated, so the marks of its thresholds are set.
"""
