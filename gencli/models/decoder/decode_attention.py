"""Attention of decode steps on CUDA."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from gencli.models.decoder.attention import DevicePlan, Scoring
from gencli.models.decoder.kernels.attention import attend_rows

__all__ = ["DecodePlan"]


class DecodePlan(DevicePlan):
    """N tokens that are computed one by one. Shapes depend on N and `end` alone: a graph can record it.

    `rows` [N] int64 are the rows of the KV buffers, `positions` [N] int64 the tokens' places. `end` bounds
    the keys that are looked at: it is beyond every position, and at most the capacity of the buffers.
    """

    def __init__(self, rows: Tensor, positions: Tensor, end: int) -> None:
        self.cells, self._end = (rows, positions), end

    def attend(self, queries: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Return the attention, as DevicePlan.attend."""
        return attend_rows(queries, buffer, *self.cells, self._end, **how)
