"""Temperature, truncation and Gumbel-max draw of each row in one pass, on a CPU, with NumPy; `FusedValues`,
the parameters of the fused stages by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from processors.chain_end import Control, controls_of, without_stages
from processors.kernels.operations import block_masses, has_more_finite, largest, total_mass
from processors.params import Params
from processors.rng import BITS, GAMMA, Stream, mix, row_key_array
from processors.rows import Rows
from processors.sampler import BLOCK, EMPTY, NON_FINITE, PLAIN_LIMIT
from processors.stages.shared import LOWEST
from processors.stages.truncation import least_kept

LOG2_E = math.log2(math.e)
_MOST_K = 511  # largest k
_COLDEST, _HOTTEST = 1e-3, 1e3  # temperatures at which float32 masses have at most the relative error _COARSE
_COARSE, _FINE = 2e-5, 1e-12  # bounds of the relative error of a total mass, in float32 and float64
_ROUNDING = 2.0**-52  # further relative error of a float64 sum, for each term

_Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class FusedValues:
    """The values of the fused stages for each row, all [A, 1]; None for a stage that is off.

    `truncates`: whether any of them truncates. `scale`: log2(e) / temperature, so that a mass is
    2^(scale logit). `least_kept`: smallest logit that min-p keeps if the largest is 0. `keeps_ties` (top-k)
    and `is_exclusive` (top-p) are equal in all rows.
    """

    truncates: bool
    scale: Tensor
    temperature: _Array | None
    min_p: Tensor | None
    least_kept: _Array | None
    top_k: _Array | None
    top_p: _Array | None
    most_k: int
    keeps_ties: bool
    is_exclusive: bool

    @classmethod
    def of(cls, ends: Sequence[Sequence[tuple[str, Params]]]) -> FusedValues | None:
        """Return the tail of rows [A] that end with the same stages, in order, by the values of each row.

        None if they cannot be fused here.
        """
        lines = [line for stages in ends if (line := controls_of(stages))]
        if len(lines) < len(ends):
            return None
        values = [set(column) for column in zip(*lines, strict=True)]
        heats, off = values[Control.HEAT_DRAW], without_stages()
        if (
            max(values[Control.IS_K_LATE] | values[Control.IS_MIN_LATE])
            or len(values[Control.KEEP_TIES]) + len(values[Control.EXCLUSIVE]) > 2
            or max(values[Control.TOP_K]) > _MOST_K
            or values[Control.HEAT_CUT] != heats
            or (max(heats) and not _COLDEST <= min(heats) <= max(heats) <= _HOTTEST)
        ):
            return None
        table = torch.tensor(lines, dtype=torch.float64)
        heat, min_p, top_k, top_p = (
            None if values[field] == {off[field]} else table[:, field, None]
            for field in (Control.HEAT_DRAW, Control.MIN_P, Control.TOP_K, Control.TOP_P)
        )
        ones = torch.ones(len(lines), 1, dtype=torch.float64)
        return cls(
            truncates=not (min_p is None and top_k is None and top_p is None),
            scale=(LOG2_E / (ones if heat is None else heat)).float(),
            temperature=None if heat is None else heat.float().numpy(),
            min_p=min_p,
            least_kept=None if min_p is None else least_kept(torch.zeros_like(ones), min_p).numpy(),
            top_k=None if top_k is None else top_k.long().numpy(),
            top_p=None if top_p is None else top_p.numpy(),
            most_k=int(max(values[Control.TOP_K])),
            keeps_ties=bool(lines[0][Control.KEEP_TIES]),
            is_exclusive=bool(lines[0][Control.EXCLUSIVE]),
        )

    def at(self, index: _Array | slice) -> FusedValues:
        names = ("scale", "temperature", "min_p", "least_kept", "top_k", "top_p")
        columns = {name: getattr(self, name) for name in names}
        return replace(
            self, **{name: column[index] for name, column in columns.items() if column is not None}
        )

    def cooled(self, logits: _Array, peak: _Array) -> _Array:
        """Return (logits - peak) / temperature for logits [A, N], peaks [A, 1]; logits without a temperature.

        A finite logit may become -inf, unlike in the stage; its probability beside the peak is 0 anyway.
        """
        if self.temperature is None:
            return logits
        values = logits - peak
        values /= self.temperature
        return values

    def least(self, peak: _Array) -> _Array:
        """Return the smallest logit that min-p keeps [A, 1]; peak [A, 1] is 0 after a temperature."""
        assert self.min_p is not None
        if self.temperature is not None and self.least_kept is not None:
            return self.least_kept
        return least_kept(torch.from_numpy(np.maximum(peak, LOWEST)), self.min_p).numpy()

    def length(
        self, values: _Array, least: _Array | float = -math.inf, total: Callable[[], _Array] | None = None
    ) -> tuple[_Array, _Array]:
        """Return how many of the sorted values [A, N] are kept, at least 1, and if that is certain; [A, 1].

        The count is certain if no logit outside `values` can be kept; such logits are at most `least` [A, 1].
        `total` returns the mass of whole rows, for values that are only part of a row.
        """
        length = np.full((len(values), 1), values.shape[1])
        if self.min_p is not None:
            length = (values >= self.least(values[:, :1])).sum(1, keepdims=True)
        if self.top_k is not None:
            length = np.minimum(length, self.top_k)
            if self.keeps_ties:
                length = (values >= values[np.arange(len(values))[:, None], length - 1]).sum(1, keepdims=True)
        if self.top_p is None:
            return np.maximum(length, 1), np.ones_like(length, dtype=bool)
        masses = values.astype(np.float64)
        masses -= values[:, :1]
        masses *= LOG2_E
        np.exp2(masses, out=masses)
        is_cut = self.min_p is not None or self.top_k is not None
        if is_cut:
            masses *= np.arange(values.shape[1]) < length
        sums = masses.cumsum(1)
        mass, error = sums[:, -1:], _FINE + _ROUNDING * values.shape[1]
        is_known = (length < values.shape[1]) | (least == -math.inf)
        if total is not None and not is_cut and not is_known.all():
            mass, error, is_known = total(), _COARSE, np.ones_like(is_known)
        bound, margin = mass * self.top_p, error * mass
        # A cumulative sum within the error margin of the bound may be on either side of it.
        low = (sums < bound - margin).sum(1, keepdims=True)
        is_certain = is_known & (low == (sums <= bound + margin).sum(1, keepdims=True))
        kept = low if self.is_exclusive else low + 1
        return np.maximum(np.minimum(length, kept), 1), is_certain


_FEW, _MORE = 64, 512  # number of largest logits that are searched first, and if these do not suffice
_NARROW = 2048  # V up to which all logits of a row are used, unless many have to be sorted
_SMALL = 2 * PLAIN_LIMIT  # logits of a step up to which all logits of rows with V <= PLAIN_LIMIT are used
_TOGETHER = 1 << 15  # logits processed together; larger intermediate results leave the CPU caches
_LEAD, _BLOCK_LEAD = 1e-9, 1e-4  # margins of the best score over the second; a smaller lead may be rounding
_SPARSE = 4  # noise is drawn for the kept logits alone if fewer than one in 4 is kept

_CERTAIN = np.ones((1, 1), dtype=bool)
_LEAST = np.float32(-math.inf)


class FusedChoice(NamedTuple):
    """Tokens [A] int64, negative for a failed row as in Sampler, and the indices [N] of uncertain rows."""

    tokens: _Array
    uncertain: _Array


class _Rows(NamedTuple):
    """Logits [A, V] float32 before the fused stages, and seeds and positions [A]."""

    logits: Tensor
    seeds: _Array
    positions: _Array

    def at(self, index: _Array | slice) -> _Rows:
        return _Rows(self.logits[index], self.seeds[index], self.positions[index])


@np.errstate(all="ignore")  # faulty rows are marked at the end
def choose_fused(logits: Tensor, tail: FusedValues, rows: Rows) -> FusedChoice:
    """Return a token for each row of logits [A, V] float32, contiguous. The logits are not changed."""
    these, width = _Rows(logits, rows.seeds.numpy(), rows.positions.numpy()), logits.shape[1]
    if not tail.truncates and width > PLAIN_LIMIT:
        return _choose_in_blocks(these, tail)
    # Using all logits takes less time than searching the largest ones, where they are few or not sorted.
    is_sorted = tail.top_p is not None and tail.top_k is None
    is_narrow = width <= _NARROW and (not is_sorted or logits.numel() <= _TOGETHER)
    is_small = _NARROW < width <= PLAIN_LIMIT and logits.numel() <= _SMALL
    if not tail.truncates or is_narrow or is_small:
        return _choose_in_parts(these, tail)
    choice = _choose_among(max(_FEW, tail.most_k + 1), these, tail)
    if len(choice.uncertain) and width > PLAIN_LIMIT:
        choice = _again(choice, _choose_among(_MORE, *_at(choice.uncertain, these, tail)))
    if len(choice.uncertain):
        choice = _again(choice, _choose_in_parts(*_at(choice.uncertain, these, tail)))
    return choice


def _at(index: _Array | slice, rows: _Rows, tail: FusedValues) -> tuple[_Rows, FusedValues]:
    return rows.at(index), tail.at(index)


def _again(choice: FusedChoice, other: FusedChoice) -> FusedChoice:
    at = choice.uncertain
    choice.tokens[at] = other.tokens
    return FusedChoice(choice.tokens, at[other.uncertain])


def _choose_among(count: int, rows: _Rows, tail: FusedValues) -> FusedChoice:
    """Choose among the `count` largest logits of each row, or all if there are fewer."""
    width = rows.logits.shape[1]
    listed, numbers = largest(rows.logits, min(count, width))
    top, ids = listed[:, :1], numbers.numpy()
    peak = top.numpy()
    values = tail.cooled(listed.numpy(), peak)
    least, size = values[:, -1:] if count < width else -math.inf, values.shape[1]
    length, is_certain = tail.length(values, least, lambda: total_mass(rows.logits, top, tail.scale).numpy())
    row = np.arange(len(values))[:, None]
    at_least = (values >= values[row, length - 1]).sum(1, keepdims=True)
    is_certain = is_certain & ((at_least < size) | (least == -math.inf))  # the others are below the last kept
    if (at_least != length).any():  # among equal logits at the cut the lowest ids stay
        order = np.lexsort((ids, -values))
        values, ids = values[row, order], ids[row, order]
    longest = length.max()
    if longest == 1:
        return _settled(ids[:, 0].copy(), is_certain, peak)
    scores = values[:, :longest] + _noise(rows, Stream.TOKEN, ids[:, :longest])
    if len(length) > 1:
        scores[np.arange(longest) >= length] = -math.inf
    column, is_ahead = _best(scores, _LEAD)
    return _settled(ids[row[:, 0], column], is_certain & is_ahead, peak)


def _choose_in_parts(rows: _Rows, tail: FusedValues) -> FusedChoice:
    """As `_choose_among_all`, in groups of rows whose intermediate results fit the cache."""
    count, width = rows.logits.shape
    together = max(1, _TOGETHER // width)
    choose = _choose_among_all if width <= PLAIN_LIMIT else _choose_among_many
    if count <= together:
        return choose(rows, tail)
    starts = range(0, count, together)
    parts = [choose(*_at(slice(start, start + together), rows, tail)) for start in starts]
    tokens = np.concatenate([part.tokens for part in parts])
    uncertain = [part.uncertain + start for start, part in zip(starts, parts, strict=True)]
    return FusedChoice(tokens, np.concatenate(uncertain))


def _choose_among_all(rows: _Rows, tail: FusedValues) -> FusedChoice:
    """Choose among all logits of rows with few ids, each of which draws its own noise."""
    logits = rows.logits.numpy()
    peak = logits.max(1, keepdims=True)
    values = tail.cooled(logits, peak)
    is_kept, is_certain = _kept(values, tail) if tail.truncates else (None, _CERTAIN)
    if is_kept is None:
        scores = _noise(rows, Stream.TOKEN, _ids(values.shape[1])) + values
    elif _SPARSE * np.count_nonzero(is_kept) < is_kept.size:
        at = is_kept.reshape(-1).nonzero()[0]  # on one dimension `nonzero` takes a fifth of the time of two
        row, ids = np.divmod(at, values.shape[1])
        keys = row_key_array(rows.seeds, rows.positions, Stream.TOKEN)
        scores = np.full(values.shape, -math.inf)
        scores.reshape(-1)[at] = values.reshape(-1)[at] + gumbel_array(keys[row], ids)
    else:
        scores = _noise(rows, Stream.TOKEN, _ids(values.shape[1])) + np.where(is_kept, values, _LEAST)
    column, is_ahead = _best(scores, _LEAD)
    return _settled(column, is_certain & is_ahead, peak)


def _choose_among_many(rows: _Rows, tail: FusedValues) -> FusedChoice:
    logits = rows.logits.numpy()
    peak = logits.max(1, keepdims=True)
    values = tail.cooled(logits, peak)
    is_kept, is_certain = _kept(values, tail)
    if np.count_nonzero(is_kept) > PLAIN_LIMIT:
        left = torch.from_numpy(np.where(is_kept, logits, np.float32(-math.inf)))
        tokens, uncertain = _choose_in_blocks(rows._replace(logits=left), tail)
        return FusedChoice(tokens, uncertain if is_certain.all() else np.arange(1))
    ids = is_kept.nonzero()[1][None]
    column, is_ahead = _best(values[:, ids[0]] + _noise(rows, Stream.TOKEN, ids), _LEAD)
    return _settled(ids[0, column], is_certain & is_ahead, peak)


def _kept(values: _Array, tail: FusedValues) -> tuple[_Array, _Array]:
    """Return which of the values [A, V] are kept, all of them finite, and if the cut is certain [A, 1]."""
    if tail.top_k is None and tail.top_p is None:
        least = np.maximum(tail.least(values.max(1, keepdims=True)), LOWEST)
        return values >= least, np.ones_like(least, dtype=bool)
    if tail.top_k is None and values.shape[1] > PLAIN_LIMIT:
        cuts = [_nucleus(values[row], tail.at(slice(row, row + 1))) for row in range(len(values))]
        length, last, is_certain = (np.array(column)[:, None] for column in zip(*cuts, strict=True))
    else:
        count = values.shape[1]
        if tail.top_k is not None and not tail.keeps_ties:
            count = min(count, tail.most_k + 1)
        first = values.shape[1] - count
        ranked = np.partition(values, first, axis=1)[:, first:] if first else values.copy()
        ranked.sort(axis=1)  # NaN is the largest
        ranked = ranked[:, ::-1]
        length, is_certain = tail.length(ranked)
        last = np.maximum(ranked[np.arange(len(ranked))[:, None], length - 1], LOWEST)
    is_kept = values >= last
    surplus = is_kept.sum(1, keepdims=True) - length
    if (surplus > 0).any():  # among equal logits at the cut the lowest ids stay
        is_tied = values == last
        is_kept &= ~(is_tied & (is_tied[:, ::-1].cumsum(1)[:, ::-1] <= surplus))
    return is_kept, is_certain


_BINS, _BIN = 4096, 2.0**-7  # bins of values by their distance to the peak, and the width of one


def _nucleus(values: _Array, tail: FusedValues) -> tuple[int, float, bool]:
    """Return how many of the values [V] of a row are kept, the last of them, and if that is certain.

    As `FusedValues.length` of all values sorted; but only those of the bins in which the cut may be are.
    """
    assert tail.top_p is not None
    peak, count = values.max(), len(values)
    if not np.isfinite(peak):
        return 1, LOWEST, True  # the row is marked at the end
    masses = values.astype(np.float64)
    masses -= peak
    bins = np.minimum(masses * -(1 / _BIN), _BINS - 1).astype(np.int64)
    masses *= LOG2_E
    np.exp2(masses, out=masses)
    if tail.min_p is not None:
        is_left = values >= tail.least(peak.reshape(1, 1))[0]
        masses *= is_left
        count = int(np.count_nonzero(is_left))
    sums = np.bincount(bins, masses, _BINS).cumsum()
    bound = sums[-1] * tail.top_p.item()
    margin = (_FINE + _ROUNDING * len(values)) * sums[-1]
    low, high = np.searchsorted(sums, (bound - margin, bound + margin), side="left")
    inside = ((bins >= low) & (bins <= high)).nonzero()[0]
    order = inside[np.argsort(-values[inside])]
    before = int(np.count_nonzero(bins < low))
    parts = masses[order].cumsum()
    if low:
        parts += sums[low - 1]
    first, beyond = np.count_nonzero(parts < bound - margin), np.count_nonzero(parts <= bound + margin)
    length = max(1, min(count, before + int(first) + (not tail.is_exclusive)))
    last = values[order[length - before - 1]] if length > before else values[bins < low].min()
    return length, max(float(last), LOWEST), first == beyond


def _choose_in_blocks(rows: _Rows, tail: FusedValues) -> FusedChoice:
    """Choose among all logits in two levels, as `gumbel_max` does for rows with many finite logits."""
    top, logits = rows.logits.amax(1, keepdim=True), rows.logits.numpy()
    sums = np.log(block_masses(rows.logits, top, tail.scale, BLOCK).numpy().astype(np.float64))
    sums += _noise(rows, Stream.BLOCK, _ids(sums.shape[1]))
    block, is_ahead = _best(sums, _BLOCK_LEAD)
    start, row, peak = block * BLOCK, _ids(len(block))[0], top.numpy()
    beyond = start.max() + BLOCK - logits.shape[1]  # ids of the last block that the row lacks
    ids = start[:, None] + _ids(BLOCK)
    inside = logits[row[:, None], ids if beyond <= 0 else ids.clip(max=logits.shape[1] - 1)]
    scores = tail.cooled(inside, peak) + _noise(rows, Stream.TOKEN, ids)
    if beyond > 0:
        scores[ids >= logits.shape[1]] = -math.inf
    column, is_first = _best(scores, _LEAD)
    return _settled(ids[row, column], is_ahead & is_first & _has_many(rows.logits), peak)


def _has_many(logits: Tensor) -> _Array:
    """Return for each row of logits [A, V] whether it surely has more than PLAIN_LIMIT finite ones [A, 1]."""
    if np.count_nonzero(logits.numpy()[:, : 2 * PLAIN_LIMIT].min(1) > -math.inf) == len(logits):
        return _CERTAIN
    return has_more_finite(logits, PLAIN_LIMIT).numpy()[:, None]


def _noise(rows: _Rows, stream: Stream, ids: _Array) -> _Array:
    return gumbel_array(row_key_array(rows.seeds, rows.positions, stream)[:, None], ids)


def _best(scores: _Array, lead: float) -> tuple[_Array, _Array]:
    """Return the column [A] of the best of the scores [A, N], and whether its lead exceeds `lead` [A, 1].

    The best scores are overwritten with -inf.
    """
    column, row = scores.argmax(1), _ids(len(scores))[0]
    best = scores[row, column]
    scores[row, column] = -math.inf
    return column, (best - scores.max(1) > lead)[:, None]


def _settled(tokens: _Array, is_certain: _Array, peak: _Array) -> FusedChoice:
    """Return the choice of these tokens [A]; rows whose peak [A, 1] is not finite get a negative token."""
    is_sound = np.isfinite(peak)
    if np.count_nonzero(is_sound) < len(peak):
        faults = np.where(peak == -math.inf, EMPTY, NON_FINITE)
        tokens = np.where(is_sound, tokens[:, None], faults)[:, 0]
        is_certain = is_certain | ~is_sound
    return FusedChoice(tokens, (~is_certain).nonzero()[0])


@lru_cache(64)
def _ids(count: int) -> _Array:
    ids = np.arange(count)[None]
    ids.flags.writeable = False
    return ids


_GAMMA = np.uint64(GAMMA)
_WIDTH = 2.0**-BITS


def gumbel_array(keys: NDArray[np.uint64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the noise of `gumbel`, float64, broadcast over (row key, id); the last bits may differ."""
    hashes = mix(keys + ids.view(np.uint64) * _GAMMA)
    hashes >>= np.uint64(64 - BITS)
    noise: NDArray[np.float64] = hashes + 0.5
    noise *= _WIDTH
    for _ in range(2):
        np.log(noise, out=noise)
        np.negative(noise, out=noise)
    return noise
