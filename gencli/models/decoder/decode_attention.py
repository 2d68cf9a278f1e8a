"""Attention of one pass on CUDA, over tensors on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from gencli.core.step import Feed
from gencli.models.decoder.kernels.attention import attend_rows
from gencli.models.decoder.kernels.chunk import attend_chunk
from gencli.models.kv.formats import widened
from processors.upload import upload_ints

__all__ = ["DecodePlan", "DevicePlan", "MixedPlan", "device_plan"]

# The tokens of a feed up to this length are computed one by one, with the bits of decode steps.
_MOST_TOKENS = 16


class DevicePlan(Protocol):
    """The attention of one pass over N tokens. `cells` are their (row, position) indices [N] in buffers."""

    cells: tuple[Tensor, Tensor]

    def attend(
        self, queries: Tensor, buffer: Tensor, *, window: int | None, scale: float, cap: float | None
    ) -> Tensor:
        """Return the attention [N, Hq * D] of `queries` [N, Hq, D], as AttentionPlan.attend.

        The tokens' own keys and values are in the buffer already.
        """


class DecodePlan:
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


class MixedPlan:
    """Short feeds are computed token by token, as by DecodePlan; each longer feed has its own call.

    `feeds` have buffer rows as lanes.
    """

    def __init__(self, feeds: Sequence[Feed], cells: tuple[Tensor, Tensor], end: int) -> None:
        self.cells = cells
        short: list[int] = []
        self._long: list[tuple[slice, Feed]] = []
        column = 0
        for feed in feeds:
            after = column + len(feed.tokens)
            if len(feed.tokens) <= _MOST_TOKENS:
                short += range(column, after)
            else:
                self._long.append((slice(column, after), feed))
            column = after
        self._short = upload_ints(short, cells[0].device)
        self._plan = DecodePlan(cells[0][self._short], cells[1][self._short], end) if short else None

    def attend(
        self, queries: Tensor, buffer: Tensor, *, window: int | None, scale: float, cap: float | None
    ) -> Tensor:
        """Return the attention, as DevicePlan.attend."""
        out = queries.new_empty(len(queries), queries[0].numel())
        if self._plan is not None:
            asked = queries[self._short]
            out[self._short] = self._plan.attend(asked, buffer, window=window, scale=scale, cap=cap)
        kv_heads = buffer.shape[1] // 2
        for columns, feed in self._long:
            first = max(0, feed.start + 1 - window) if window else 0
            held = widened(buffer[feed.lane, :, first : feed.end], queries.dtype).transpose(0, 1)
            keys, values = held[:, :kv_heads], held[:, kv_heads:]
            out[columns] = attend_chunk(queries[columns], keys, values, window=window, scale=scale, cap=cap)
        return out


def device_plan(feeds: Sequence[Feed], cells: tuple[Tensor, Tensor], end: int) -> DevicePlan:
    """Return the plan for feeds that have buffer rows as lanes."""
    if all(len(feed.tokens) <= _MOST_TOKENS for feed in feeds):
        return DecodePlan(*cells, end)
    return MixedPlan(feeds, cells, end)
