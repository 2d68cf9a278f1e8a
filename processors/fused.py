"""Scale, truncate and draw in one: a token for each row from its largest logits, without a pass a stage.

Temperature, min-p, top-k and top-p keep the order of the logits, so what they leave is the beginning of the
row sorted by logit, and of equal ones by id. Its length is found among the few largest logits, and the draw
is between these. Without truncation the draw is the two-level one. A token counts as certain only if neither
rounding nor logits that were not looked at can change it; the stages run for the other rows.

Lists of a few logits are handled in NumPy, whose calls take a quarter of the time of PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from processors.base import Processor
from processors.kernels.blocks import has_more_finite
from processors.kernels.largest import block_masses, largest, total_mass
from processors.noise import gumbel_array
from processors.rng import Stream, row_key_array
from processors.rows import Rows
from processors.sampler import BLOCK, EMPTY, NON_FINITE, PLAIN_LIMIT
from processors.stages.temperature import cool_
from processors.stages.tokens import LOWEST
from processors.stages.truncation import least_kept

__all__ = ["Choice", "Tail", "choose_fused"]

_FEW, _MORE = 64, 512  # largest logits of a row that are looked at; more if they are too few
_MOST_K = 511  # largest k
_COLDEST, _HOTTEST = 1e-3, 1e3  # temperatures at which float32 masses are as exact as _COARSE says
_COARSE, _FINE = 2e-5, 1e-12  # bounds of the relative error of a total mass, in float32 and float64
_LEAD, _BLOCK_LEAD = 1e-9, 1e-4  # of the best score over the second; less may be rounding
_LOG2_E = math.log2(math.e)

_Array = NDArray[Any]


class Choice(NamedTuple):
    """Tokens [A] int64, negative ones as those of Sampler, and the rows whose token is uncertain [N].

    `num_wide` counts the rows for which a few of their logits were not enough.
    """

    tokens: _Array
    uncertain: _Array
    num_wide: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The values of the fused stages for each row, all [A, 1]; None for a stage that is off.

    `scale` turns logits into powers of 2; `temperature` and it are tensors. `least_kept`: what min-p keeps if
    the largest logit is 0. `ties`, `boundary`: those of top-k and top-p, for all rows.
    """

    scale: Tensor
    temperature: Tensor | None
    min_p: Tensor | None
    least_kept: _Array | None
    top_k: _Array | None
    top_p: _Array | None
    most_k: int
    ties: str
    boundary: str

    @classmethod
    def of(cls, stages: Mapping[str, Processor[Any]], rows: Rows) -> Tail | None:
        """Return the tail that these stages make on these rows; None for values left to the stages."""
        known = {
            f"{stage}.{name}": one.columns.known(name, rows)
            for stage, one in stages.items()
            for name in one.Params.__dataclass_fields__
        }
        if not all(_LIMITS.get(key, _are_equal)(values) for key, values in known.items()):
            return None
        columns = {
            name: stage.columns.exact(stage.Params.main(), rows)[:, None] for name, stage in stages.items()
        }
        heat, min_p = columns.get("temperature"), columns.get("min_p")
        one = torch.ones(len(rows), 1, dtype=torch.float64)
        return cls(
            scale=(_LOG2_E / (one if heat is None else heat)).float(),
            temperature=None if heat is None else heat.float(),
            min_p=min_p,
            least_kept=None if min_p is None else least_kept(torch.zeros_like(one), min_p).numpy(),
            top_k=columns["top_k"].numpy() if "top_k" in columns else None,
            top_p=columns["top_p"].numpy() if "top_p" in columns else None,
            most_k=max(known.get("top_k.k", {0})),
            ties=min(known.get("top_k.ties", {"cut"})),
            boundary=min(known.get("top_p.boundary", {"inclusive"})),
        )

    @property
    def truncates(self) -> bool:
        """Whether any stage truncates."""
        return not (self.min_p is None and self.top_k is None and self.top_p is None)

    def at(self, index: _Array) -> Tail:
        """Return the tail of the rows `index` [N]."""
        names = ("scale", "temperature", "min_p", "least_kept", "top_k", "top_p")
        columns = {name: getattr(self, name) for name in names}
        return replace(self, **{name: one[index] for name, one in columns.items() if one is not None})


def _are_equal(values: set[Any]) -> bool:
    return len(values) == 1


def _is_one(values: set[Any]) -> bool:
    return values == {1}


# Which values of a field in the rows of a step may be fused; those of other fields have to be equal.
_LIMITS: dict[str, Callable[[set[Any]], bool]] = {
    "temperature.temperature": lambda values: min(values) >= _COLDEST and max(values) <= _HOTTEST,
    "min_p.p": bool,
    "min_p.keep": _is_one,
    "top_k.k": lambda values: max(values) <= _MOST_K,
    "top_k.keep": _is_one,
    "top_p.p": bool,
    "top_p.keep": _is_one,
}


class _Rows(NamedTuple):
    """Logits [A, V] float32 before the fused stages, and seeds and positions [A]."""

    logits: Tensor
    seeds: _Array
    positions: _Array

    def at(self, index: _Array) -> _Rows:
        """Return the rows `index` [N]."""
        return _Rows(self.logits[index], self.seeds[index], self.positions[index])


@np.errstate(all="ignore")  # faulty rows are found at the end
def choose_fused(logits: Tensor, tail: Tail, rows: Rows) -> Choice:
    """Return a token for each row of logits [A, V] float32, contiguous, which are not changed."""
    these, width = _Rows(logits, rows.seeds.numpy(), rows.positions.numpy()), logits.shape[1]
    if not tail.truncates:
        return _choose_in_blocks(these, tail) if width > PLAIN_LIMIT else _choose_of_all(these, tail)
    choice = _choose_among(max(_FEW, tail.most_k + 1), these, tail)
    at = choice.uncertain
    if not len(at) or width <= _FEW:
        return choice
    more = _choose_among(width if width <= PLAIN_LIMIT else _MORE, these.at(at), tail.at(at))
    choice.tokens[at] = more.tokens
    return Choice(choice.tokens, at[more.uncertain], len(at))


def _choose_among(count: int, rows: _Rows, tail: Tail) -> Choice:
    """Choose among the `count` largest logits of each row, or all if there are fewer."""
    listed, numbers = largest(rows.logits, min(count, rows.logits.shape[1]))
    peak = listed[:, :1].clone()
    if tail.temperature is not None:
        cool_(listed, peak, tail.temperature)
    values, ids, size = listed.numpy(), numbers.numpy(), listed.shape[1]
    least = values[:, -1:] if size < rows.logits.shape[1] else np.full((1, 1), -math.inf)
    length, is_certain = _length(
        values, least, tail, lambda: total_mass(rows.logits, peak, tail.scale).numpy()
    )
    row = np.arange(len(values))[:, None]
    at_least = (values >= values[row, length - 1]).sum(1, keepdims=True)
    is_certain = is_certain & ((at_least < size) | (least == -math.inf))  # others are below the last kept
    if (at_least != length).any():  # of equal logits at the end the lowest ids stay
        order = np.lexsort((ids, -values))
        values, ids = values[row, order], ids[row, order]
    return _drawn(values, ids, length, is_certain, rows, peak.numpy())


def _length(values: _Array, least: _Array, tail: Tail, total: Callable[[], _Array]) -> tuple[_Array, _Array]:
    """Return how many of the sorted values [A, N] are kept, at least 1, and whether that is certain; [A, 1].

    It is so if no other logits are kept; these are at most `least` [A, 1]. `total` returns the mass of a row.
    """
    length = _before_top_p(values, tail)
    if tail.top_p is None:
        return np.maximum(length, 1), np.ones_like(length, dtype=bool)
    masses = np.exp2((values.astype(np.float64) - values[:, :1]) * _LOG2_E)
    masses *= np.arange(values.shape[1]) < length
    sums = masses.cumsum(1)
    mass, error, is_known = sums[:, -1:], _FINE, (length < values.shape[1]) | (least == -math.inf)
    if tail.min_p is None and tail.top_k is None and not is_known.all():
        mass, error, is_known = total(), _COARSE, np.ones_like(is_known)
    bound = mass * tail.top_p
    if tail.boundary == "exclusive":
        kept = (sums <= bound).sum(1, keepdims=True)
    else:
        kept = (sums < bound).sum(1, keepdims=True) + 1
    is_certain = is_known & (abs(sums - bound) > error * mass).all(1, keepdims=True)
    return np.maximum(np.minimum(length, kept), 1), is_certain


def _before_top_p(values: _Array, tail: Tail) -> _Array:
    """Return how many of the sorted values [A, N] min-p and top-k keep [A, 1]."""
    length = np.full((len(values), 1), values.shape[1])
    if tail.min_p is not None:
        length = (values >= _least_kept(values[:, :1], tail)).sum(1, keepdims=True)
    if tail.top_k is not None:
        length = np.minimum(length, tail.top_k)
        if tail.ties == "keep":
            length = (values >= values[np.arange(len(values))[:, None], length - 1]).sum(1, keepdims=True)
    return length


def _least_kept(peak: _Array, tail: Tail) -> _Array:
    """Return the smallest value that min-p keeps [A, 1]; peak [A, 1] is 0 after a temperature."""
    assert tail.min_p is not None
    if tail.temperature is not None and tail.least_kept is not None:
        return tail.least_kept
    return least_kept(torch.from_numpy(np.maximum(peak, LOWEST)), tail.min_p).numpy()


def _choose_of_all(rows: _Rows, tail: Tail) -> Choice:
    """Choose among all logits of rows so narrow that each id draws its own noise."""
    values, peak = rows.logits.clone(), rows.logits.amax(1, keepdim=True)
    if tail.temperature is not None:
        cool_(values, peak, tail.temperature)
    ids = np.arange(values.shape[1])[None]
    length = np.full((len(values), 1), values.shape[1])
    return _drawn(values.numpy(), ids, length, np.ones_like(length, dtype=bool), rows, peak.numpy())


def _choose_in_blocks(rows: _Rows, tail: Tail) -> Choice:
    """Choose among all logits in two levels, as `gumbel_max` does for rows with many finite logits."""
    logits, peak = rows.logits, rows.logits.amax(1, keepdim=True)
    sums = np.log(block_masses(logits, peak, tail.scale, BLOCK).numpy().astype(np.float64))
    scores = sums + _noise(rows, Stream.BLOCK, np.arange(sums.shape[1]))
    place, is_ahead = _best(scores, _BLOCK_LEAD)
    block, is_certain = place[:, None], is_ahead & has_more_finite(logits, PLAIN_LIMIT).numpy()[:, None]
    ids = block * BLOCK + np.arange(BLOCK)
    inside = logits.gather(1, torch.from_numpy(ids.clip(max=logits.shape[1] - 1)))
    if tail.temperature is not None:
        cool_(inside, peak, tail.temperature)
    length = np.minimum(logits.shape[1] - block * BLOCK, BLOCK)
    return _drawn(inside.numpy(), ids, length, is_certain, rows, peak.numpy())


def _noise(rows: _Rows, stream: Stream, ids: _Array) -> _Array:
    return gumbel_array(row_key_array(rows.seeds, rows.positions, stream)[:, None], ids)


def _drawn(
    values: _Array, ids: _Array, length: _Array, is_certain: _Array, rows: _Rows, peak: _Array
) -> Choice:
    """Draw among the first `length` [A, 1] of the values [A, N] with these ids [A or 1, N]."""
    longest = length.max()
    if longest == 1:
        tokens = ids[:, 0].copy()
    else:
        scores = values[:, :longest] + _noise(rows, Stream.TOKEN, ids[:, :longest])
        if len(length) > 1:
            scores[np.arange(longest) >= length] = -math.inf
        place, is_ahead = _best(scores, _LEAD)
        tokens = ids[np.arange(len(ids)), place] if len(ids) == len(place) else ids[0, place]
        is_certain = is_certain & is_ahead
    is_sound = np.isfinite(peak)
    if not is_sound.all():
        tokens = np.where(is_sound, tokens[:, None], np.where(peak == -math.inf, EMPTY, NON_FINITE)).squeeze(
            1
        )
        is_certain = is_certain | ~is_sound
    return Choice(tokens, (~is_certain).nonzero()[0])


def _best(scores: _Array, lead: float) -> tuple[_Array, _Array]:
    """Return the place of the best of the scores [A, N], [A], and whether it leads by `lead` [A, 1]."""
    place = scores.argmax(1)
    least = scores[np.arange(len(place)), place] - lead
    return place, (scores >= least[:, None]).sum(1, keepdims=True) == 1
