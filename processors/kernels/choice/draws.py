"""The draw among what is left of each row: its ids are listed, or its blocks summed, then one is drawn."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.choice.facts import facts_of, in_blocks
from processors.kernels.choice.parts import CAPACITY, Control, Fact, Level, Mark, cooled, heat, orders_of
from processors.kernels.operation import operation
from processors.rng import Stream, gumbel, row_keys
from processors.sampler import BLOCK, PLAIN_LIMIT

__all__ = ["draw_ids", "draw_ids_torch", "kept", "survey", "survey_torch"]


def kept(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor) -> Tensor:
    """Return which of the logits [R, V] the stages keep."""
    return (orders_of(logits, controls, levels) >= marks[:, Mark.LEAST, None]) & (logits > -torch.inf)


def survey_torch(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, facts: Tensor) -> Tensor:
    """As survey, in PyTorch."""
    ids = torch.zeros(len(logits), CAPACITY, dtype=torch.int32, device=logits.device)
    is_left = kept(logits, controls, levels, marks)
    is_drawn = (marks[:, Mark.FAULT] == 0) & (controls[:, Control.GREEDY] == 0)
    is_few = marks[:, Mark.COUNT] <= PLAIN_LIMIT
    row, found = (is_left & (is_drawn & is_few)[:, None]).nonzero(as_tuple=True)
    counts = row.bincount(minlength=len(logits))
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    ids[row, place] = found.int()
    marks[:, Mark.LISTED] = counts
    is_cooler = controls[:, Control.HEAT_CUT] != controls[:, Control.HEAT_DRAW]
    is_summed = is_drawn & ~is_few & ((marks[:, Mark.IS_CUT] > 0) | is_cooler)
    sums = facts_of(logits.float().masked_fill(~is_left, -torch.inf), heat(controls, Control.HEAT_DRAW))
    facts.copy_(torch.where(is_summed[:, None, None], sums, facts))
    return ids


def draw_ids_torch(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    marks: Tensor,
    facts: Tensor,
    ids: Tensor | None,
    seeds: Tensor,
    positions: Tensor,
) -> Tensor:
    """As draw_ids, in PyTorch."""
    logits, peak = logits.float(), levels[:, Level.PEAK, None].float()
    tokens = (logits == peak).int().argmax(1)
    if ids is not None:
        drawn = _drawn(logits, controls, levels, marks, facts, ids, seeds, positions)
        tokens = torch.where(controls[:, Control.GREEDY] > 0, tokens, drawn)
    return torch.where(marks[:, Mark.FAULT] < 0, marks[:, Mark.FAULT], tokens)


def _drawn(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    marks: Tensor,
    facts: Tensor,
    ids: Tensor,
    seeds: Tensor,
    positions: Tensor,
) -> Tensor:
    """Return the token of each row that is not greedy."""
    peak, temperature = levels[:, Level.PEAK, None].float(), heat(controls, Control.HEAT_DRAW)
    # A few ids, each with noise of its own.
    keys = row_keys(seeds, positions, Stream.TOKEN)[:, None]
    inside = logits.gather(1, ids.long())
    scores = cooled(inside, peak, temperature) + gumbel(keys, ids.long())
    is_listed = torch.arange(ids.shape[1], device=ids.device) < marks[:, Mark.LISTED, None]
    few = _best(torch.where(is_listed, scores, -torch.inf), ids.long())
    # A block, then an id of the block.
    tops = facts[:, Fact.TOP]
    sums = cooled(tops, peak, temperature).double() + facts[:, Fact.SUM].double().log()
    sums = torch.where(tops > -torch.inf, sums, -torch.inf)
    block_keys = row_keys(seeds, positions, Stream.BLOCK)[:, None]
    block = (sums + gumbel(block_keys, torch.arange(tops.shape[1], device=ids.device))).argmax(
        1, keepdim=True
    )
    values = cooled(logits.masked_fill(~kept(logits, controls, levels, marks), -torch.inf), peak, temperature)
    values = in_blocks(values, -torch.inf)[torch.arange(len(values), device=ids.device), block[:, 0]]
    inner = block * BLOCK + torch.arange(BLOCK, device=ids.device)
    many = _best(values + gumbel(keys, inner), inner)
    return torch.where(marks[:, Mark.COUNT] <= PLAIN_LIMIT, few, many)


def _best(scores: Tensor, ids: Tensor) -> Tensor:
    """Return the id [R] of the best score [R, N]; the lowest of several."""
    is_best = scores == scores.amax(1, keepdim=True)
    return torch.where(is_best, ids, torch.iinfo(torch.int64).max).amin(1)


survey = operation(
    "survey(Tensor logits, Tensor controls, Tensor levels, Tensor(a!) marks, Tensor(b!) facts) -> Tensor",
    survey_torch,
    "processors.kernels.choice.draws_triton:survey_triton",
)
"""Ids [R, CAPACITY] int32 of what is left, in rows where it is at most PLAIN_LIMIT; else facts of it."""

draw_ids = operation(
    "draw_ids(Tensor logits, Tensor controls, Tensor levels, Tensor marks, Tensor facts, Tensor? ids, "
    "Tensor seeds, Tensor positions) -> Tensor",
    draw_ids_torch,
    "processors.kernels.choice.draws_triton:draw_ids_triton",
)
"""A token [R] int64 for each row, as `Sampler` draws it by Gumbel-max; EMPTY or NON_FINITE for failed rows.

Without ids every row is greedy.
"""
