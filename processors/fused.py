"""Scale, truncate and draw in one: a token for each row from its largest logits, without a pass for each stage.

Temperature, min-p, top-k and top-p keep the order of the logits, so what they leave is the beginning of the row
sorted by logit, and of equal ones by id. Its length is found among the few largest logits, and the draw is
between these. Without truncation the draw is the two-level one, by masses in float32. A token counts as certain
only if neither rounding nor logits that were not looked at can change it; the stages run for the other rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from processors.base import Processor
from processors.kernels.blocks import has_more_finite
from processors.kernels.largest import block_masses, largest
from processors.rng import Stream, gumbel, row_keys
from processors.rows import Rows
from processors.sampler import PLAIN_LIMIT, best_block, draw_inside, of_block
from processors.stages.temperature import cool_
from processors.stages.tokens import LOWEST
from processors.stages.truncation import least_kept, mass

__all__ = ["FUSED", "Choice", "Tail", "choose_fused"]

FUSED = ("temperature", "min_p", "top_k", "top_p")  # the stages that may be fused, in default order

_FEW, _MORE = 64, 512  # largest logits of a row that are looked at; more if they are too few
_WHOLE = PLAIN_LIMIT  # ids up to which more is all of them
_MOST_K = 511  # largest k
_COLDEST, _HOTTEST = 1e-3, 1e3  # temperatures at which float32 masses are as exact as _COARSE says
_COARSE, _FINE = 2e-5, 1e-12  # bounds of the relative error of a total mass, in float32 and float64
_MARGIN = 1e-4  # lead of the best block over the second from which rounding cannot change it
_LOG2_E = math.log2(math.e)


class Choice(NamedTuple):
    """Tokens [A] int64, whether each is certain [A] bool, and the largest logit of each row [A]."""

    tokens: Tensor
    is_certain: Tensor
    peak: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The values of the fused stages for each row, all [A, 1]; None for a stage that is off.

    `scale` turns logits into powers of 2. `ties`, `boundary`: those of top-k and top-p, for all rows.
    """

    scale: Tensor
    temperature: Tensor | None = None
    min_p: Tensor | None = None
    top_k: Tensor | None = None
    top_p: Tensor | None = None
    most_k: int = 0
    ties: str = "cut"
    boundary: str = "inclusive"

    @classmethod
    def of(cls, stages: Mapping[str, Processor[Any]], rows: Rows) -> Tail | None:
        """Return the tail that these stages make on these rows; None for values that are left to the stages."""
        known = {
            f"{stage}.{name}": one.columns.known(name, rows)
            for stage, one in stages.items()
            for name in one.Params.__dataclass_fields__
        }
        if any(not _LIMITS.get(key, _are_equal)(values) for key, values in known.items()):
            return None
        columns = {
            name: stage.columns.exact(stage.Params.main(), rows)[:, None] for name, stage in stages.items()
        }
        heat = columns.get("temperature", torch.ones(len(rows), 1, dtype=torch.float64))
        if "temperature" in columns:
            columns["temperature"] = heat.float()
        return cls(
            (_LOG2_E / heat).float(),
            **columns,
            most_k=max(known.get("top_k.k", {0})),
            ties=next(iter(known.get("top_k.ties", {"cut"}))),
            boundary=next(iter(known.get("top_p.boundary", {"inclusive"}))),
        )

    @property
    def truncates(self) -> bool:
        """Whether any stage truncates."""
        return not (self.min_p is None and self.top_k is None and self.top_p is None)

    def at(self, index: Tensor) -> Tail:
        """Return the tail of the rows `index` [N]."""
        names = ("scale", "temperature", "min_p", "top_k", "top_p")
        columns = {name: getattr(self, name) for name in names}
        return replace(self, **{name: one[index] for name, one in columns.items() if one is not None})


def _are_equal(values: set[Any]) -> bool:
    return len(values) == 1


def _is_one(values: set[Any]) -> bool:
    return values == {1}


def _is_any(values: set[Any]) -> bool:
    return True


# Which values of a field in the rows of a step may be fused; those of other fields have to be equal.
_LIMITS = {
    "temperature.temperature": lambda values: min(values) >= _COLDEST and max(values) <= _HOTTEST,
    "min_p.p": _is_any,
    "min_p.keep": _is_one,
    "top_k.k": lambda values: max(values) <= _MOST_K,
    "top_k.keep": _is_one,
    "top_p.p": _is_any,
    "top_p.keep": _is_one,
}


def choose_fused(logits: Tensor, tail: Tail, rows: Rows) -> Choice:
    """Return a token for each row of logits [A, V] float32, contiguous, which are not changed."""
    if not tail.truncates:
        return _choose_in_blocks(logits, tail, rows.seeds, rows.positions)
    width = logits.shape[1]
    choice = _choose_among(max(_FEW, tail.most_k + 1), logits, tail, rows.seeds, rows.positions)
    at = choice.is_certain.logical_not().nonzero().squeeze(1)
    if len(at) and width > _FEW:
        count = width if width <= PLAIN_LIMIT else _MORE
        more = _choose_among(count, logits[at], tail.at(at), rows.seeds[at], rows.positions[at])
        choice.tokens[at], choice.is_certain[at] = more.tokens, more.is_certain
    return choice


def _choose_among(count: int, logits: Tensor, tail: Tail, seeds: Tensor, positions: Tensor) -> Choice:
    """Choose among the `count` largest logits of each row, or all if there are fewer."""
    values, ids = largest(logits, min(count, logits.shape[1]))
    peak = values[:, :1].clone()
    if tail.temperature is not None:
        cool_(values, peak.clamp(min=LOWEST), tail.temperature)
    least = values[:, -1:]  # no logit outside of the list is larger
    is_all = least == -math.inf if count < logits.shape[1] else torch.ones_like(peak, dtype=torch.bool)
    length = _before_top_p(values, tail)
    is_certain = is_all | (length < values.shape[1])
    if tail.top_p is not None:
        masses = mass(values, values[:, :1].clamp(min=LOWEST).double())
        sums = masses.masked_fill_(torch.arange(values.shape[1]) >= length, 0).cumsum(1)
        total, error = sums[:, -1:], _FINE
        if tail.min_p is None and tail.top_k is None and not bool(is_all.all()):
            total, error = _total(logits, peak, tail.scale), _COARSE
            is_certain.fill_(True)
        bound = total * tail.top_p
        is_before = sums <= bound if tail.boundary == "exclusive" else sums < bound
        count_before = is_before.sum(1, keepdim=True) + (tail.boundary == "inclusive")
        length = length.minimum(count_before).clamp_(min=1)
        is_certain &= ((sums - bound).abs_() > error * total).all(1, keepdim=True)
    last = values.gather(1, length - 1)
    is_certain &= is_all | (last > least)
    after = values.gather(1, length.clamp(max=values.shape[1] - 1))
    if bool((last == after).any()):  # of equal logits at the end the lowest ids stay
        values, ids = _by_id(values, ids)
    tokens = _draw_first(length, values, ids, seeds, positions)
    return Choice(tokens, is_certain.squeeze(1), peak.squeeze(1))


def _before_top_p(values: Tensor, tail: Tail) -> Tensor:
    """Return how many of the sorted values [A, N] min-p and top-k keep, at least 1; [A, 1]."""
    length = torch.full((len(values), 1), values.shape[1])
    if tail.min_p is not None:
        length = (values >= least_kept(values[:, :1].clamp(min=LOWEST), tail.min_p)).sum(1, keepdim=True)
    if tail.top_k is not None:
        length = length.minimum(tail.top_k).clamp_(min=1)
        if tail.ties == "keep":
            length = (values >= values.gather(1, length - 1)).sum(1, keepdim=True)
    return length.clamp_(min=1)


def _total(logits: Tensor, peak: Tensor, scale: Tensor) -> Tensor:
    """Return the mass of each row [A, 1] in float64, within a relative error of _COARSE."""
    return block_masses(logits, peak, scale).sum(1, keepdim=True, dtype=torch.float64)


def _by_id(values: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sorted list [A, N] with equal values in the order of their ids."""
    ids, order = ids.sort(1)
    values, place = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, ids.gather(1, place)


def _draw_first(length: Tensor, values: Tensor, ids: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """Draw among the first `length` [A, 1] of the values [A, N] with these ids; return tokens [A]."""
    longest = int(length.max())
    values, ids = values[:, :longest], ids[:, :longest]
    if longest == 1:
        return ids.squeeze(1).clone()
    scores = values + gumbel(row_keys(seeds, positions, Stream.TOKEN)[:, None], ids)
    scores.masked_fill_(torch.arange(longest) >= length, -math.inf)
    is_best = scores == scores.amax(1, keepdim=True)
    return torch.where(is_best, ids, torch.iinfo(torch.int64).max).amin(1)


def _choose_in_blocks(logits: Tensor, tail: Tail, seeds: Tensor, positions: Tensor) -> Choice:
    """Choose among all logits in two levels, as `gumbel_max` does for rows with many finite logits."""
    peak = logits.amax(1, keepdim=True)
    block, lead = best_block(block_masses(logits, peak, tail.scale).double().log_(), seeds, positions)
    is_certain = (lead.squeeze(1) > _MARGIN) & has_more_finite(logits, PLAIN_LIMIT)
    ids, inside = of_block(logits, block, -math.inf)
    if tail.temperature is not None:
        cool_(inside, peak.clamp(min=LOWEST), tail.temperature)
    return Choice(draw_inside(ids, inside, seeds, positions), is_certain, peak.squeeze(1))
