"""Attention of one pass on CUDA, over tensors on the device, and that of decode steps."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from gencli.models.decoder.kernels.attention import attend_rows

__all__ = ["DecodePlan", "DevicePlan"]


class DevicePlan(ABC):
    """Attention of one pass over N tokens. `cells` are their (row, position) indices [N] in the buffers."""

    cells: tuple[Tensor, Tensor]

    @abstractmethod
    def attend(
        self, queries: Tensor, buffer: Tensor, *, window: int | None, scale: float, cap: float | None
    ) -> Tensor:
        """Return the attention [N, Hq * D] of `queries` [N, Hq, D], as AttentionPlan.attend.

        The tokens' own keys and values are in the buffer already.
        """


class DecodePlan(DevicePlan):
    """N tokens that are computed one by one. Shapes depend on N and `end` alone: a graph can record it.

    `rows` [N] int64 are the rows of the KV buffers, `positions` [N] int64 the tokens' places. `end` bounds
    the keys that are looked at: it is beyond every position, and at most the capacity of the buffers.
    """

    def __init__(self, rows: Tensor, positions: Tensor, end: int) -> None:
        self.cells, self._end = (rows, positions), end

    def attend(
        self, queries: Tensor, buffer: Tensor, *, window: int | None, scale: float, cap: float | None
    ) -> Tensor:
        """Return the attention, as DevicePlan.attend."""
        return attend_rows(queries, buffer, *self.cells, self._end, window=window, scale=scale, cap=cap)
