"""The stage `temperature`; `top_k`, `top_p` and `min_p`, which keep the most likely tokens; and `xtc`,
which excludes the top choices with some probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from processors.base import Admission, Columns, Processor
from processors.catalog import MinPParams, Phase, TemperatureParams, TopKParams, TopPParams
from processors.catalog.truncation import XtcParams
from processors.kernels.operations import (
    best_values,
    drop_below,
    is_surplus,
    row_cumsums,
    row_parts,
    row_sums,
)
from processors.rng import Stream, row_keys, uniform
from processors.rows import Rows
from processors.stages.shared import HIGHEST, LOWEST, IdStage, exempt_ids


class Temperature(Processor[TemperatureParams]):
    """x = (x - max(x)) / T. The largest logit becomes 0; finite logits stay finite for any T.

    T = 0 masks all but the first of the largest logits. An unconditionally greedy chain is resolved to a
    greedy draw without this stage, so T = 0 occurs only under a condition.
    """

    name = "temperature"
    phase = Phase.SCALE
    Params = TemperatureParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        # The lower bound of T is the smallest normal float32. A smaller T would matter only for logits that
        # differ by less than the float32 spacing near 1.
        temperature = self.columns.exact("temperature", rows).clamp(torch.finfo(torch.float32).tiny, HIGHEST)
        temperature, peak = temperature.float()[:, None], logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        for part in row_parts(logits):
            cool_(logits[part], peak[part], temperature[part])
        if 0 in self.columns.known("temperature", rows):
            _leave_first_(logits, self.columns.exact("temperature", rows) == 0)
        return logits


def _leave_first_(logits: Tensor, is_greedy: Tensor) -> None:
    """Mask all but the first of the largest logits [A, V] in some rows [A] bool."""
    first = logits.argmax(1, keepdim=True)  # NaN counts as the largest, so faults stay
    best = logits.gather(1, first)
    logits.masked_fill_(is_greedy[:, None], -torch.inf).scatter_(1, first, best)


def cool_(logits: Tensor, peak: Tensor, temperature: float | Tensor) -> Tensor:
    """Replace logits [A, N] by (logits - peak) / temperature, both [A, 1]; finite logits stay finite."""
    least = logits.clamp(max=LOWEST)  # -inf for masked logits, else the lower bound
    logits.sub_(peak).div_(temperature)
    return torch.maximum(logits, least, out=logits)


_LOG2_E = math.log2(math.e)


class TopK(Processor[TopKParams]):
    """Keep exactly the k most likely tokens, ties by lowest id; `ties: keep` keeps all ties."""

    name = "top_k"
    phase = Phase.TRUNCATE
    Params = TopKParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Sorts the largest k of the batch."""
        largest = max(self.columns.known("k", rows) | self.columns.known("keep", rows))
        ranked = best(logits, largest)
        count = torch.maximum(self.columns.gather("k", rows), self.columns.gather("keep", rows))[:, None]
        threshold, room = cut(ranked, count)
        keep_ties = self.columns.gather("ties", rows)[:, None] == 1  # cut 0, keep 1
        return drop_below(logits, threshold, torch.where(keep_ties, logits.shape[1], room))

    def idle(self, rows: Rows) -> list[str]:
        return [f"{count} tokens or fewer are left" for count in self.columns.gather("k", rows).tolist()]


class TopP(Processor[TopPParams]):
    """Keep the nucleus: the most likely tokens until their probabilities sum to p (Holtzman et al. 2019).

    A token is kept if the mass before it is below p, so the one that crosses p is kept. With `boundary:
    exclusive` it is kept if the mass including it is at most p.
    """

    name = "top_p"
    phase = Phase.TRUNCATE
    Params = TopPParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Masses are float64."""
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        ranked = enough_best(logits)
        bound = of_row(total_mass, logits, ranked, peak) * self.columns.exact("p", rows)[:, None]
        is_exclusive = self.columns.gather("boundary", rows)[:, None] == 1  # inclusive 0, exclusive 1
        keep = self.columns.gather("keep", rows)[:, None]
        return drop_below(logits, *settled(_nucleus, logits, ranked, peak, bound, is_exclusive, keep))


class MinP(Processor[MinPParams]):
    """Keep tokens at least p times as likely as the most likely one (Nguyen et al. 2024).

    In the log domain: x >= max(x) + ln p, so p = 1 keeps exactly the ties with the maximum.
    """

    name = "min_p"
    phase = Phase.TRUNCATE
    Params = MinPParams
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Sorts only if some row has `keep` above 1."""
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        threshold = least_kept(peak, self.columns.exact("p", rows)[:, None])
        return keep_above(logits, threshold, self.columns, rows)


def keep_above(logits: Tensor, threshold: Tensor, columns: Columns, rows: Rows) -> Tensor:
    """Mask logits [A, V] below the threshold [A, 1], except the `keep` largest (a field of `columns`)."""
    largest_keep = max(columns.known("keep", rows))
    if largest_keep == 1:
        return drop_below(logits, threshold)
    last, room = cut(best(logits, largest_keep), columns.gather("keep", rows)[:, None])
    room = torch.where(last < threshold, room, logits.shape[1])
    return drop_below(logits, torch.minimum(threshold, last), room)


def total_mass(logits: Tensor, peak: Tensor) -> Tensor:
    """Return the sum of exp(logits - peak) over each row [A, 1] float64."""
    return row_sums(mass(logits, peak))


def _nucleus(
    ranked: Tensor, peak: Tensor, bound: Tensor, is_exclusive: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return whether the nucleus ends within `ranked` [A, N], its threshold and its room [A, 1].

    peak, bound, is_exclusive, keep [A, 1]. Masses are relative to that of the most likely token.
    """
    sums = row_cumsums(mass(ranked, peak))
    inclusive = (sums < bound).sum(1, keepdim=True) + 1
    exclusive = (sums <= bound).sum(1, keepdim=True)
    count = torch.where(is_exclusive, exclusive, inclusive).maximum(keep)
    return count < ranked.shape[1], *cut(ranked, count)


def mass(logits: Tensor, peak: Tensor) -> Tensor:
    """Return exp(logits - peak) in float64, by exp2, which takes a CPU a quarter of the time of exp."""
    return logits.double().sub_(peak).mul_(_LOG2_E).exp2_()


def least_kept(peak: Tensor, p: Tensor) -> Tensor:
    """Return the smallest logit [A, 1] float32 that min-p keeps, for peak [A, 1] and p [A, 1] float64."""
    return rounded_up(peak.double() + p.log())


def rounded_up(value: Tensor) -> Tensor:
    """Return the smallest float32 >= the float64 value, so that float32 comparisons decide as in float64."""
    nearest = value.float()
    above = torch.nextafter(nearest, torch.full_like(nearest, math.inf))
    return torch.where(nearest.double() < value, above, nearest)


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


# Numbers of largest logits that a CPU sorts before it sorts the whole row. A GPU sorts the whole row at once,
# without synchronisation.
_RUNGS = (128, 16384)


def best(logits: Tensor, count: int) -> Tensor:
    """Return the `count` largest values of each row, descending, [A, min(count, V)]."""
    return best_values(logits, min(count, logits.shape[1]))


def enough_best(logits: Tensor) -> Tensor:
    """Return the largest values of each row, descending [A, N], enough for most rows; on a GPU all."""
    width = logits.shape[1]
    is_wide = logits.device.type == "cpu" and width > _RUNGS[-1]
    return best(logits, _RUNGS[0] if is_wide else width)


def of_row(sums: Callable[..., Tensor], logits: Tensor, ranked: Tensor, *columns: Tensor) -> Tensor:
    """Return `sums(logits, *columns [A, 1])` [A, N]; from `ranked` alone if it has all values of each row.

    A GPU always uses all logits, because checking that would synchronise.
    """
    if logits.device.type != "cpu":
        return sums(logits, *columns)
    results = sums(ranked, *columns)
    if ranked.shape[1] < logits.shape[1]:
        at = (ranked[:, -1] > -math.inf).nonzero().squeeze(1)
        for part in row_parts(logits, len(at)):
            some = at[part]
            results[some] = sums(logits[some], *(column[some] for column in columns))
    return results


def settled(
    decide: Callable[..., tuple[Tensor, ...]], logits: Tensor, ranked: Tensor, *columns: Tensor
) -> tuple[Tensor, ...]:
    """Return the results of `decide(ranked [A, N], *columns [A, 1])`, each [A, 1], without the first.

    The first result says whether the other results are certain. Uncertain rows are decided again with more of
    their largest values, in the end with all.
    """
    is_certain, *results = decide(ranked, *columns)
    width = logits.shape[1]
    if ranked.shape[1] < width:
        at = is_certain.logical_not().squeeze(1).nonzero().squeeze(1)
        count = next((rung for rung in _RUNGS if rung > ranked.shape[1]), width)
        for part in row_parts(logits, len(at)) if len(at) else ():
            some = at[part]
            few, theirs = logits[some], [column[some] for column in columns]
            more = settled(decide, few, best(few, count), *theirs)
            for have, new in zip(results, more, strict=True):
                have[some] = new
    return tuple(results)


def cut(ranked: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the count-th largest value, and the number of its ties among the first count; all [A, 1]."""
    count = count.clamp(max=ranked.shape[1])
    threshold = ranked.gather(1, count - 1)
    return threshold, count - (ranked > threshold).sum(1, keepdim=True)
