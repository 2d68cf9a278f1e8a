"""The facts of the blocks of rows, and what follows from them: the largest logit, and where a cut may lie."""

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

REACH = 40.0  # the bins reach at most so far below the largest logit; the last has all others
TAME, VAST = 2.0**-20, 2.0**60  # of logits and temperatures whose quotients never leave the normal numbers
_NEAR = 1e-30  # and at least so far
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
    """Return levels [R, L], marks [R, M] and tokens [R] of greedy and failed rows from their facts."""
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
    # Of k blocks each has a logit that is at least the k-th largest of the blocks' largest, here with half
    # of its bits.
    ranked = key_of(tops).sort(1, descending=True).values
    kth = ranked.gather(1, (k.long() - 1).clamp(0, tops.shape[1] - 1)) >> 16 << 16
    kth = value_of(kth.maximum(key_of(torch.full_like(top, -torch.inf))))
    from_k = torch.where((k > 0) & (k <= tops.shape[1]), kth, -torch.inf)
    # What is less likely than this has a mass of less than 1 - p in all.
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

Tokens are those of greedy and failed rows, OPEN in the others. `cuts`: some row has a cut.
"""
