"""Temperature, truncation and Gumbel-max draw of each row in one pass, on a CPU.

Temperature, min-p, top-k and top-p keep the order of the logits, so the tokens that they keep are a prefix of
the row sorted by logit (ties by id). The length of the prefix is determined from the largest logits (`_FEW`,
then `_MORE`), and only the prefix draws noise. Without truncation the draw is the two-level one of
`gumbel_max`. All logits of a row are used if the largest ones do not suffice, and for small inputs, where the
overhead of a call exceeds the computation.

A token is certain if neither rounding nor logits outside the largest ones can change it. The caller reruns
uncertain rows through the stages. Short lists are handled in NumPy, whose calls take a quarter of the time of
PyTorch's.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from processors.kernels.blocks import has_more_finite
from processors.kernels.largest import block_masses, largest, total_mass
from processors.noise import gumbel_array
from processors.rng import Stream, row_key_array
from processors.rows import Rows
from processors.sampler import BLOCK, EMPTY, NON_FINITE, PLAIN_LIMIT
from processors.stages.tokens import LOWEST
from processors.tail import Tail

__all__ = ["Choice", "choose_fused"]

_FEW, _MORE = 64, 512  # number of largest logits that are searched first, and if these do not suffice
_NARROW = 2048  # V up to which all logits of a row are used, unless many have to be sorted
_SMALL = 2 * PLAIN_LIMIT  # logits of a step up to which all logits of rows with V <= PLAIN_LIMIT are used
_TOGETHER = 1 << 15  # logits processed together; larger intermediate results leave the CPU caches
_LEAD, _BLOCK_LEAD = 1e-9, 1e-4  # margins of the best score over the second; a smaller lead may be rounding

_SPARSE = 4  # noise is drawn for the kept logits alone if fewer than one in 4 is kept

_Array = NDArray[Any]
_CERTAIN = np.ones((1, 1), dtype=bool)
_LEAST = np.float32(-math.inf)


class Choice(NamedTuple):
    """Tokens [A] int64, negative for a failed row as in Sampler, and the indices [N] of uncertain rows."""

    tokens: _Array
    uncertain: _Array


class _Rows(NamedTuple):
    """Logits [A, V] float32 before the fused stages, and seeds and positions [A]."""

    logits: Tensor
    seeds: _Array
    positions: _Array

    def at(self, index: _Array | slice) -> _Rows:
        """Return the rows `index` [N]."""
        return _Rows(self.logits[index], self.seeds[index], self.positions[index])


@np.errstate(all="ignore")  # faulty rows are marked at the end
def choose_fused(logits: Tensor, tail: Tail, rows: Rows) -> Choice:
    """Return a token for each row of logits [A, V] float32, contiguous. The logits are not changed."""
    these, width = _Rows(logits, rows.seeds.numpy(), rows.positions.numpy()), logits.shape[1]
    if not tail.truncates and width > PLAIN_LIMIT:
        return _choose_in_blocks(these, tail)
    if not tail.truncates or _are_few(logits, tail):
        return _choose_in_parts(these, tail)
    choice = _choose_among(max(_FEW, tail.most_k + 1), these, tail)
    if len(choice.uncertain) and width > PLAIN_LIMIT:
        choice = _again(choice, _choose_among(_MORE, *_at(choice.uncertain, these, tail)))
    if len(choice.uncertain):
        choice = _again(choice, _choose_in_parts(*_at(choice.uncertain, these, tail)))
    return choice


def _are_few(logits: Tensor, tail: Tail) -> bool:
    """Whether using all logits [A, V] takes less time than searching the largest ones."""
    width = logits.shape[1]
    if width > _NARROW:
        return width <= PLAIN_LIMIT and logits.numel() <= _SMALL
    is_sorted = tail.top_p is not None and tail.top_k is None  # sorts whole rows
    return not is_sorted or logits.numel() <= _TOGETHER


def _at(index: _Array | slice, rows: _Rows, tail: Tail) -> tuple[_Rows, Tail]:
    return rows.at(index), tail.at(index)


def _again(choice: Choice, other: Choice) -> Choice:
    """Return `choice` with its uncertain rows replaced by `other`, a choice for just these rows."""
    at = choice.uncertain
    choice.tokens[at] = other.tokens
    return Choice(choice.tokens, at[other.uncertain])


def _choose_among(count: int, rows: _Rows, tail: Tail) -> Choice:
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
    place, is_ahead = _best(scores, _LEAD)
    return _settled(ids[row[:, 0], place], is_certain & is_ahead, peak)


def _choose_in_parts(rows: _Rows, tail: Tail) -> Choice:
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
    return Choice(tokens, np.concatenate(uncertain))


def _choose_among_all(rows: _Rows, tail: Tail) -> Choice:
    """Choose among all logits of rows with few ids, each of which draws its own noise."""
    logits = rows.logits.numpy()
    peak = logits.max(1, keepdims=True)
    values = tail.cooled(logits, peak)
    is_kept, is_certain = _kept(values, tail) if tail.truncates else (None, _CERTAIN)
    if is_kept is None:
        scores = _noise(rows, Stream.TOKEN, _ids(values.shape[1])) + values
    elif _SPARSE * np.count_nonzero(is_kept) < is_kept.size:
        scores = _sparse_scores(values, is_kept, rows)
    else:
        scores = _noise(rows, Stream.TOKEN, _ids(values.shape[1])) + np.where(is_kept, values, _LEAST)
    place, is_ahead = _best(scores, _LEAD)
    return _settled(place, is_certain & is_ahead, peak)


def _sparse_scores(values: _Array, is_kept: _Array, rows: _Rows) -> _Array:
    """Return the values plus noise [A, V] of the few kept ids; -inf for all others."""
    at = is_kept.reshape(-1).nonzero()[0]  # on one dimension `nonzero` takes a fifth of the time of two
    row, ids = np.divmod(at, values.shape[1])
    keys = row_key_array(rows.seeds, rows.positions, Stream.TOKEN)
    scores = np.full(values.size, -math.inf)
    scores[at] = values.reshape(-1)[at] + gumbel_array(keys[row], ids)
    return scores.reshape(values.shape)


def _choose_among_many(rows: _Rows, tail: Tail) -> Choice:
    """Choose among all logits of one wide row."""
    logits = rows.logits.numpy()
    peak = logits.max(1, keepdims=True)
    values = tail.cooled(logits, peak)
    is_kept, is_certain = _kept(values, tail)
    if np.count_nonzero(is_kept) > PLAIN_LIMIT:
        left = torch.from_numpy(np.where(is_kept, logits, np.float32(-math.inf)))
        tokens, uncertain = _choose_in_blocks(rows._replace(logits=left), tail)
        return Choice(tokens, uncertain if is_certain.all() else np.arange(1))
    ids = is_kept.nonzero()[1][None]
    place, is_ahead = _best(values[:, ids[0]] + _noise(rows, Stream.TOKEN, ids), _LEAD)
    return _settled(ids[0, place], is_certain & is_ahead, peak)


def _kept(values: _Array, tail: Tail) -> tuple[_Array, _Array]:
    """Return which of the values [A, V] are kept, all of them finite, and if the cut is certain [A, 1]."""
    if tail.top_k is None and tail.top_p is None:
        least = np.maximum(tail.least(values.max(1, keepdims=True)), LOWEST)
        return values >= least, np.ones_like(least, dtype=bool)
    count = values.shape[1]
    if tail.top_k is not None and tail.ties == "cut":
        count = min(count, tail.most_k + 1)
    ranked = _ranked(values, count)
    length, is_certain = tail.length(ranked)
    last = np.maximum(ranked[np.arange(len(ranked))[:, None], length - 1], LOWEST)
    is_kept = values >= last
    surplus = is_kept.sum(1, keepdims=True) - length
    if (surplus > 0).any():  # among equal logits at the cut the lowest ids stay
        is_tied = values == last
        is_kept &= ~(is_tied & (is_tied[:, ::-1].cumsum(1)[:, ::-1] <= surplus))
    return is_kept, is_certain


def _ranked(values: _Array, count: int) -> _Array:
    """Return the `count` largest of the values [A, V], descending; NaN is the largest."""
    first = values.shape[1] - count
    ranked = np.partition(values, first, axis=1)[:, first:] if first else values.copy()
    ranked.sort(axis=1)
    return ranked[:, ::-1]


def _choose_in_blocks(rows: _Rows, tail: Tail) -> Choice:
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
    place, is_first = _best(scores, _LEAD)
    return _settled(ids[row, place], is_ahead & is_first & _has_many(rows.logits), peak)


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
    place, row = scores.argmax(1), _ids(len(scores))[0]
    best = scores[row, place]
    scores[row, place] = -math.inf
    return place, (best - scores.max(1) > lead)[:, None]


def _settled(tokens: _Array, is_certain: _Array, peak: _Array) -> Choice:
    """Return the choice of these tokens [A]; rows whose peak [A, 1] is not finite get a negative token."""
    is_sound = np.isfinite(peak)
    if np.count_nonzero(is_sound) < len(peak):
        faults = np.where(peak == -math.inf, EMPTY, NON_FINITE)
        tokens = np.where(is_sound, tokens[:, None], faults)[:, 0]
        is_certain = is_certain | ~is_sound
    return Choice(tokens, (~is_certain).nonzero()[0])


@lru_cache(64)
def _ids(count: int) -> _Array:
    """Return the ids 0 to count - 1 [1, count]; cached, so read-only."""
    ids = np.arange(count)[None]
    ids.flags.writeable = False
    return ids
