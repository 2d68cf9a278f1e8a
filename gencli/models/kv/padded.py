"""Group the feeds of a step into forward passes, and lay out the tensors of a padded pass.

Feeds of a padded batch are right-aligned: the wanted positions are the last columns of every row, so one
`logits_to_keep` fits all rows. The columns left of a shorter feed are pads, computed and discarded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from gencli.core.step import Feed, cells_of
from gencli.models.kv.packed_attention import QuerySplit
from processors.upload import upload

__all__ = [
    "ForwardBatch",
    "fill_gaps",
    "is_rectangle",
    "make_padded_batch",
    "split_feeds",
]


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """Inputs of one forward pass: B feeds in lane order, Q columns.

    `ids` and `positions` are [B, Q]. `kv_length` (K) is the length of the longest lane after the pass.
    `lanes` is a slice if the lanes are adjacent (views, no copies), else their indices [B]. `start` is the
    common first position if all feeds have equal start and width, else None. `wanted` is the number of last
    columns with logits. `target` are the (lane, position) indices to write keys and values to; `source` are
    their (row, column) in the batch, None without pads. `room` is the (lanes, tokens) of the whole step, so
    that buffers grow once, before its first pass.

    With `query_splits` the batch is packed: B = 1, one feed after another in the row, and `wanted` are the
    column indices [R].
    """

    feeds: tuple[Feed, ...]
    ids: Tensor
    positions: Tensor
    lanes: slice | Tensor
    room: tuple[int, int]
    start: int | None
    kv_length: int
    wanted: int | Tensor
    target: tuple[Tensor, Tensor] | None
    source: tuple[Tensor, Tensor] | None
    query_splits: tuple[QuerySplit, ...] = ()

    @property
    def num_held(self) -> int:
        """Tokens held before the pass by the lane that is longest after it."""
        if self.query_splits:
            return max(self.feeds, key=lambda feed: feed.end).start
        return self.kv_length - self.ids.shape[1]


def split_feeds(feeds: Iterable[Feed], *, pad_budget: int) -> list[tuple[Feed, ...]]:
    """Group feeds into forward passes, each in lane order.

    Feeds of different length share a pass while its pads stay within `pad_budget` tokens: about the cost of
    reading the weights once more.
    """
    groups: list[list[Feed]] = []
    pads, widest = 0, 0
    ordered = sorted(feeds, key=lambda feed: len(feed.tokens), reverse=True)
    for width, same in groupby(ordered, key=lambda feed: len(feed.tokens)):
        members = list(same)
        pads += len(members) * (widest - width)
        if groups and pads <= pad_budget:
            groups[-1].extend(members)
        else:
            groups.append(members)
            pads, widest = 0, width
    return [tuple(sorted(group, key=lambda feed: feed.lane)) for group in groups]


def fill_gaps(feeds: tuple[Feed, ...], *, pad_budget: int) -> tuple[Feed, ...]:
    """Add empty feeds for idle lanes between the others, where that costs less than copying lanes.

    An empty feed is a row of pads: it writes no keys or values and has no wanted logits.
    """
    idle = sorted(set(range(feeds[0].lane, feeds[-1].lane)) - {feed.lane for feed in feeds})
    width = max(len(feed.tokens) for feed in feeds)
    if not idle or len(idle) > len(feeds) or len(idle) * width > pad_budget:
        return feeds
    return tuple(sorted([*feeds, *(Feed(lane, 0, (), 0) for lane in idle)], key=lambda feed: feed.lane))


def make_padded_batch(
    feeds: tuple[Feed, ...], device: torch.device, *, room: tuple[int, int]
) -> ForwardBatch:
    """Return the padded batch of one pass. Its index tensors are made once for all layers, without a sync."""
    width = max(len(feed.tokens) for feed in feeds)
    pads = [width - len(feed.tokens) for feed in feeds]
    ids = [[0] * pad + list(feed.tokens) for feed, pad in zip(feeds, pads, strict=True)]
    # The position of a pad only has to be valid: 0, or one that the lane already holds.
    positions = [
        [max(0, first + column) for column in range(width)]
        for first in (feed.start - pad for feed, pad in zip(feeds, pads, strict=True))
    ]
    packed = upload([ids, positions], device)
    first, last = feeds[0].lane, feeds[-1].lane
    is_range = last - first + 1 == len(feeds)
    start = feeds[0].start if not any(pads) and len({feed.start for feed in feeds}) == 1 else None
    batch_lanes = slice(first, last + 1) if is_range else upload([feed.lane for feed in feeds], device)
    target, source = (None, None) if start is not None and is_range else _cells(feeds, pads, device)
    return ForwardBatch(
        feeds=feeds,
        ids=packed[0],
        positions=packed[1],
        lanes=batch_lanes,
        room=room,
        start=start,
        kv_length=max(feed.end for feed in feeds),
        wanted=max(feed.num_logits for feed in feeds),
        target=target,
        source=source,
    )


def is_rectangle(feeds: tuple[Feed, ...]) -> bool:
    """Return whether the feeds are of adjacent lanes, in order, and of equal length."""
    first = feeds[0]
    return all(
        feed.lane == first.lane + i and len(feed.tokens) == len(first.tokens) for i, feed in enumerate(feeds)
    )


def _cells(
    feeds: tuple[Feed, ...], pads: list[int], device: torch.device
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]:
    """Return (lane, position) indices [N] of the fed tokens, and their (row, column) if there are pads."""
    cells = [(row, pads[row] + i) for row, feed in enumerate(feeds) for i in range(len(feed.tokens))]
    table = [*zip(*cells_of(feeds), strict=True), *zip(*cells, strict=True)]
    lanes, positions, rows, columns = upload(table, device)
    return (lanes, positions), (rows, columns) if any(pads) else None
