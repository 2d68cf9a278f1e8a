"""Attention of one pass on CUDA with prompts, or chunks of them, beside decode steps and drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from torch import Tensor

from gencli.core.step import Feed
from gencli.models.decoder.attention import DevicePlan, Scoring
from gencli.models.decoder.decode_attention import DecodePlan
from gencli.models.decoder.fixed_attention import FixedPlan
from gencli.models.decoder.kernels.chunk import attend_chunk
from gencli.models.kv.formats import widened
from gencli.models.kv.static_steps import MOST_ALONE
from processors.upload import upload_ints

__all__ = ["ChunkPlan", "MixedPlan", "device_plan"]


class MixedPlan(DevicePlan):
    """Short feeds are computed token by token, as by DecodePlan; each longer feed has its own plan.

    `feeds` have buffer rows as lanes. With `is_fixed` a token has the same bits in a feed of any length.
    """

    def __init__(
        self, feeds: Sequence[Feed], cells: tuple[Tensor, Tensor], end: int, *, is_fixed: bool
    ) -> None:
        self.cells = cells
        short: list[int] = []
        self._long: list[tuple[slice, DevicePlan]] = []
        column = 0
        for feed in feeds:
            after = column + len(feed.tokens)
            if len(feed.tokens) <= MOST_ALONE:
                short += range(column, after)
            else:
                columns = slice(column, after)
                own = (cells[0][columns], cells[1][columns])
                plan = FixedPlan(*own, feed.end) if is_fixed else ChunkPlan(feed, own)
                self._long.append((columns, plan))
            column = after
        self._short = upload_ints(short, cells[0].device)
        self._plan = DecodePlan(cells[0][self._short], cells[1][self._short], end) if short else None

    def attend(self, queries: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Return the attention, as DevicePlan.attend."""
        out = queries.new_empty(len(queries), queries[0].numel())
        if self._plan is not None:
            asked = queries[self._short]
            out[self._short] = self._plan.attend(asked, buffer, **how)
        for columns, plan in self._long:
            out[columns] = plan.attend(queries[columns], buffer, **how)
        return out


class ChunkPlan(DevicePlan):
    """The plan for the tokens of one feed, which has a buffer row as lane, in one call without a mask."""

    def __init__(self, feed: Feed, cells: tuple[Tensor, Tensor]) -> None:
        self.cells, self._feed = cells, feed

    def attend(self, queries: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Return the attention, as DevicePlan.attend."""
        feed, kv_heads, window = self._feed, buffer.shape[1] // 2, how["window"]
        first = max(0, feed.start + 1 - window) if window else 0
        held = widened(buffer[feed.lane, :, first : feed.end], queries.dtype).transpose(0, 1)
        keys, values = held[:, :kv_heads], held[:, kv_heads:]
        return attend_chunk(queries, keys, values, **how)


def device_plan(
    feeds: Sequence[Feed], cells: tuple[Tensor, Tensor], end: int, *, is_fixed: bool
) -> DevicePlan:
    """Return the plan for feeds that have buffer rows as lanes.

    With `is_fixed` a token has the same bits in a feed of any length.
    """
    if all(len(feed.tokens) <= MOST_ALONE for feed in feeds):
        return DecodePlan(*cells, end)
    return MixedPlan(feeds, cells, end, is_fixed=is_fixed)
