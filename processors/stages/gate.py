"""The stage `xtc`: exclude the top choices with some probability, drawn for each row and position."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from processors.base import Admission
from processors.catalog import Phase
from processors.catalog.gate import XtcParams
from processors.kernels.blocks import is_surplus, row_parts
from processors.kernels.sums import row_sums
from processors.rng import Stream, row_keys, uniform
from processors.rows import Rows
from processors.stages.lists import IdStage
from processors.stages.tokens import LOWEST, exempt_ids
from processors.stages.truncation import mass, rounded_up, total_mass

__all__ = ["Xtc"]


class _Options(NamedTuple):
    """Parameters of xtc by row, [A, 1]; exempt ids [A, N]; a Literal is its index."""

    probability: Tensor
    threshold: Tensor
    on_exempt: Tensor
    compare: Tensor
    ties: Tensor
    mode: Tensor
    keep: Tensor
    exempt: Tensor
    has_exempt: Tensor

    def at(self, index: Tensor | slice) -> _Options:
        """Return the options of some rows."""
        return _Options(*(column[index] for column in self))


class Xtc(IdStage[XtcParams]):
    """Exclude the top choices: of the likely tokens only the least likely stays (Weidmann 2024).

    The random number depends on the row's seed and position alone. The listed ids are the exempt ones.
    TokenError at admission: an exempt text that is not one token.
    """

    name = "xtc"
    phase = Phase.GATE
    Params = XtcParams
    keeps_faults = True

    def listed(self, params: XtcParams, request: Admission) -> Iterable[int]:
        """Return the exempt ids below the model's vocabulary size."""
        return (
            token
            for token in exempt_ids(params.exempt, self.env, request, self.name)
            if token < self.env.vocab_size
        )

    def admit(self, slot: int, params: XtcParams, request: Admission) -> None:
        """Set up the slot; add a notice if the threshold allows no two top choices."""
        super().admit(slot, params, request)
        text = (
            f"xtc has a threshold of {params.threshold:g}, which no two tokens can both pass, so it changes "
            "nothing: give less than 0.5."
        )
        if not params.can_act() and text not in self.notices:
            self.notices.append(text)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. On a CPU only rows that exclude anything are processed."""
        options = self._options(rows)
        acts = (_rolls(rows)[:, None] < options.probability) | (options.mode == 1)
        if logits.device.type != "cpu":
            return torch.where(acts, _without_top(logits, options), logits)
        at = acts.squeeze(1).nonzero().squeeze(1)
        for part in row_parts(logits, len(at)) if len(at) else ():
            some = at[part]
            logits[some] = _without_top(logits[some], options.at(some))
        return logits

    def notes(self, rows: Rows, tokens: Sequence[int]) -> list[str]:
        """Return the random number of each row, and the probability below which the stage acts."""
        pairs = zip(_rolls(rows).tolist(), self.columns.exact("probability", rows).tolist(), strict=True)
        return [f"rolled {roll:.2f}, acts below {limit:g}" for roll, limit in pairs]

    def idle(self, rows: Rows) -> list[str]:
        """Return whether the random number was too high, or there is no top choice to exclude."""
        options, rolls = self._options(rows), _rolls(rows)[:, None]
        acts = ((rolls < options.probability) | (options.mode == 1)).squeeze(1).tolist()
        return ["no two tokens above the threshold" if each else "the roll was too high" for each in acts]

    def _options(self, rows: Rows) -> _Options:
        exact = [self.columns.exact(name, rows)[:, None] for name in ("probability", "threshold")]
        others = [self.columns.gather(name, rows)[:, None] for name in _Options._fields[2:-2]]
        return _Options._make([*exact, *others, *self.ids.gather(rows)])


def _rolls(rows: Rows) -> Tensor:
    """Return a random number in (0, 1) for each row [A] float64."""
    keys = row_keys(rows.seeds, rows.positions, Stream.XTC)
    return uniform(keys, torch.zeros_like(keys))


def _without_top(logits: Tensor, options: _Options) -> Tensor:
    """Return logits [A, V] without the top choices; with `mode: expected`, with their probability lowered."""
    peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
    total = total_mass(logits, peak)
    gone = _excluded(logits, peak + options.threshold.log() + total.log(), options)
    out = logits.masked_fill(gone, -math.inf)
    is_expected = options.mode == 1
    if not _may(is_expected):
        return out
    share = row_sums(mass(logits, peak) * gone) / total
    left = 1 - options.probability
    # Other tokens gain the factor 1 + probability share / (1 - share); excluded tokens lose that mass.
    shift = (left * (1 - share) / (1 - left * share)).log()
    shifted = (logits.double() + shift).clamp_(min=LOWEST).float()
    return torch.where(gone & is_expected & (shift > -math.inf), shifted, out)


def _excluded(logits: Tensor, threshold: Tensor, options: _Options) -> Tensor:
    """Return which logits [A, V] are excluded if the stage acts, for a threshold [A, 1] float64."""
    least = rounded_up(threshold)
    above = torch.nextafter(least, torch.full_like(least, math.inf))
    is_top = logits >= torch.where((options.compare == 1) & (least.double() == threshold), above, least)
    is_exempt = torch.zeros_like(is_top)
    is_exempt.scatter_(1, options.exempt, options.has_exempt.expand_as(options.exempt))
    if logits.is_cuda:
        gone = _top_but_last(logits, is_top, is_exempt, options)
    else:  # few ids are a top choice in any row
        at, gone = is_top.any(0).nonzero().squeeze(1), torch.zeros_like(is_top)
        if len(at):
            gone[:, at] = _top_but_last(logits[:, at], is_top[:, at], is_exempt[:, at], options)
    if _may(options.keep > 1):
        num_left = (logits > -math.inf).sum(1, keepdim=True) - gone.sum(1, keepdim=True)
        gone &= num_left >= options.keep
    return gone


def _top_but_last(logits: Tensor, is_top: Tensor, is_exempt: Tensor, options: _Options) -> Tensor:
    """Return which top choices are excluded, for logits and flags [A, N] of all top choices."""
    is_top = is_top & ~(is_exempt & (options.on_exempt == 2))
    last = logits.masked_fill(~is_top, math.inf).amin(1, keepdim=True)
    gone = is_top & (logits > last)
    tied = is_top & (logits == last) & (options.ties == 0)
    if _may(tied.sum(1) > 1):
        gone |= is_surplus(tied, torch.ones_like(options.ties))
    is_skip = (options.on_exempt == 1) & options.has_exempt
    gone &= ~((gone & is_exempt).any(1, keepdim=True) & is_skip)
    return gone & ~(is_exempt & (options.on_exempt == 0))


def _may(flags: Tensor) -> bool:
    """Whether any flag is set; True on a GPU, where reading the flags takes longer than computing on."""
    return flags.is_cuda or bool(flags.any())
