"""`Tail`: the parameters of the fused stages by row, and how many of a row's logits these stages keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from processors.base import Processor
from processors.rows import Rows
from processors.stages.tokens import LOWEST
from processors.stages.truncation import least_kept

__all__ = ["LOG2_E", "Tail"]

LOG2_E = math.log2(math.e)
_MOST_K = 511  # largest k
_COLDEST, _HOTTEST = 1e-3, 1e3  # temperatures at which float32 masses have at most the relative error _COARSE
_COARSE, _FINE = 2e-5, 1e-12  # bounds of the relative error of a total mass, in float32 and float64
_ROUNDING = 2.0**-52  # further relative error of a float64 sum, for each term

_Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The values of the fused stages for each row, all [A, 1]; None for a stage that is off.

    `scale`: log2(e) / temperature, so that a mass is 2^(scale logit). `least_kept`: smallest logit that min-p
    keeps if the largest is 0. `ties` of top-k and `boundary` of top-p are equal in all rows.
    """

    scale: Tensor
    temperature: _Array | None
    min_p: Tensor | None
    least_kept: _Array | None
    top_k: _Array | None
    top_p: _Array | None
    most_k: int
    ties: str
    boundary: str

    @classmethod
    def of(cls, stages: Mapping[str, Processor[Any]], rows: Rows) -> Tail | None:
        """Return the tail of these stages on these rows; None if their values cannot be fused."""
        known = {
            f"{stage}.{field.name}": one.columns.known(field.name, rows)
            for stage, one in stages.items()
            for field in one.Params.own_fields()
        }
        if not all(_LIMITS.get(key, _are_equal)(values) for key, values in known.items()):
            return None
        columns = {
            name: stage.columns.exact(stage.Params.main(), rows)[:, None] for name, stage in stages.items()
        }
        heat, min_p = columns.get("temperature"), columns.get("min_p")
        one = torch.ones(len(rows), 1, dtype=torch.float64)
        return cls(
            scale=(LOG2_E / (one if heat is None else heat)).float(),
            temperature=None if heat is None else heat.float().numpy(),
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

    def at(self, index: _Array | slice) -> Tail:
        """Return the tail of the rows `index` [N]."""
        names = ("scale", "temperature", "min_p", "least_kept", "top_k", "top_p")
        columns = {name: getattr(self, name) for name in names}
        return replace(self, **{name: one[index] for name, one in columns.items() if one is not None})

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
        length = self._before_top_p(values)
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
        kept = low if self.boundary == "exclusive" else low + 1
        return np.maximum(np.minimum(length, kept), 1), is_certain

    def _before_top_p(self, values: _Array) -> _Array:
        """Return how many of the sorted values [A, N] min-p and top-k keep [A, 1]."""
        length = np.full((len(values), 1), values.shape[1])
        if self.min_p is not None:
            length = (values >= self.least(values[:, :1])).sum(1, keepdims=True)
        if self.top_k is not None:
            length = np.minimum(length, self.top_k)
            if self.ties == "keep":
                length = (values >= values[np.arange(len(values))[:, None], length - 1]).sum(1, keepdims=True)
        return length


def _are_equal(values: frozenset[Any]) -> bool:
    return len(values) == 1


def _is_one(values: frozenset[Any]) -> bool:
    return values == {1}


# Values of a field that may be fused, over the rows of a step; a field not listed has to be equal in all.
_LIMITS: dict[str, Callable[[frozenset[Any]], bool]] = {
    "temperature.temperature": lambda values: min(values) >= _COLDEST and max(values) <= _HOTTEST,
    "min_p.p": bool,
    "min_p.keep": _is_one,
    "top_k.k": lambda values: max(values) <= _MOST_K,
    "top_k.keep": _is_one,
    "top_p.p": bool,
    "top_p.keep": _is_one,
}
