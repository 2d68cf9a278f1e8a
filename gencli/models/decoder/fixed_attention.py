"""Attention on CUDA that gives a token the same bits in a prompt, among drafts and in a decode step."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from gencli.models.decoder.attention import DevicePlan, Scoring
from gencli.models.decoder.kernels.attention import attend_rows

__all__ = ["FixedPlan"]

_TOGETHER = 32  # tokens of a prompt that share the reads of their keys
_MAX_CELLS = 2**20  # keys that are looked at in a call, over all its tokens; what bounds the memory


class FixedPlan(DevicePlan):
    """The plan for N successive tokens of one lane, such as a long prompt.

    A token's sums are those of DecodePlan, whose order its position alone decides. `cells` and `end` are as
    for DecodePlan.
    """

    def __init__(self, rows: Tensor, positions: Tensor, end: int) -> None:
        self.cells, self._end = (rows, positions), end
        size = max(1, _MAX_CELLS // end // _TOGETHER) * _TOGETHER
        self._parts = [slice(start, start + size) for start in range(0, len(rows), size)]

    def attend(self, queries: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Return the attention, as DevicePlan.attend."""
        rows, positions = self.cells
        mixed = [
            attend_rows(
                queries[part],
                buffer,
                rows[part],
                positions[part],
                self._end,
                **how,
                together=_TOGETHER,
            )
            for part in self._parts
        ]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)
