"""One forward pass over several lanes: which feeds share it, and where their tokens go.

Feeds of one block are right-aligned: the wanted positions are the last columns of every row, so that
one `logits_to_keep` is right for all. Columns left of a shorter feed are pads; they are computed and
thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from gencli.core.step import Feed
from gencli.models.kv.packed_attention import Part
from processors.upload import upload

__all__ = [
    "Block",
    "cells_of",
    "end_of",
    "fill_gaps",
    "is_rectangle",
    "make_block",
    "room_for",
    "split_feeds",
]


@dataclass(frozen=True, slots=True)
class Block:
    """B feeds in lane order, Q columns wide; K is the length of the longest lane once they are fed.

    `ids` and `positions` are [B, Q]. `lanes` is a slice where the lanes are neighbours (views, no
    copies), else their indices [B]. `start` is the common first position where all feeds have equal
    start and width, else None. `target` are the (lane, position) indices the keys of the fed tokens
    are written to; `source` their (row, column) in the block, or None where no column is a pad.
    `room` is the (lanes, tokens) the whole step needs: buffers grow before its first pass, not between.

    With `parts` all tokens stand in one row, B = 1, feed after feed, and `wanted` are the places [R] in it.
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
    parts: tuple[Part, ...] = ()

    @property
    def num_held(self) -> int:
        """Tokens that the lane held before which will be the longest."""
        if self.parts:
            return max(self.feeds, key=end_of).start
        return self.kv_length - self.ids.shape[1]


def split_feeds(feeds: Iterable[Feed], *, pad_budget: int) -> list[tuple[Feed, ...]]:
    """Group feeds into forward passes, each in lane order.

    Feeds of different length share a pass while the pads stay within `pad_budget` tokens: about what
    reading the weights once more costs.
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
    """Add empty feeds for the idle lanes between others, where that costs less than copying lanes would.

    An empty feed is a row of pads: nothing of it is written, and no row of logits is wanted of it.
    """
    idle = sorted(set(range(feeds[0].lane, feeds[-1].lane)) - {feed.lane for feed in feeds})
    width = max(len(feed.tokens) for feed in feeds)
    if not idle or len(idle) > len(feeds) or len(idle) * width > pad_budget:
        return feeds
    return tuple(sorted([*feeds, *(Feed(lane, 0, (), 0) for lane in idle)], key=lambda feed: feed.lane))


def room_for(feeds: tuple[Feed, ...]) -> tuple[int, int]:
    """The (lanes, tokens) that hold all feeds of a step."""
    return max(feed.lane for feed in feeds) + 1, max(map(end_of, feeds))


def make_block(feeds: tuple[Feed, ...], device: torch.device, *, room: tuple[int, int]) -> Block:
    """Lay out one pass; all index tensors are made here, once for all layers, without a sync."""
    width = max(len(feed.tokens) for feed in feeds)
    pads = [width - len(feed.tokens) for feed in feeds]
    ids = [[0] * pad + list(feed.tokens) for feed, pad in zip(feeds, pads, strict=True)]
    # A pad's position only has to be valid: 0 or one the lane has passed already.
    positions = [
        [max(0, first + column) for column in range(width)]
        for first in (feed.start - pad for feed, pad in zip(feeds, pads, strict=True))
    ]
    packed = upload([ids, positions], device)
    first, last = feeds[0].lane, feeds[-1].lane
    is_range = last - first + 1 == len(feeds)
    start = feeds[0].start if not any(pads) and len({feed.start for feed in feeds}) == 1 else None
    block_lanes = slice(first, last + 1) if is_range else upload([feed.lane for feed in feeds], device)
    target, source = (None, None) if start is not None and is_range else _cells(feeds, pads, device)
    return Block(
        feeds=feeds,
        ids=packed[0],
        positions=packed[1],
        lanes=block_lanes,
        room=room,
        start=start,
        kv_length=max(map(end_of, feeds)),
        wanted=max(feed.num_logits for feed in feeds),
        target=target,
        source=source,
    )


def is_rectangle(feeds: tuple[Feed, ...]) -> bool:
    """Whether the feeds are those of neighbouring lanes, in order, and all as long."""
    first = feeds[0]
    return all(
        feed.lane == first.lane + i and len(feed.tokens) == len(first.tokens) for i, feed in enumerate(feeds)
    )


def end_of(feed: Feed) -> int:
    """How many tokens the lane holds once it is fed."""
    return feed.start + len(feed.tokens)


def cells_of(feeds: Iterable[Feed]) -> list[tuple[int, int]]:
    """(lane, position) of every fed token, in feed order."""
    return [(feed.lane, feed.start + index) for feed in feeds for index in range(len(feed.tokens))]


def _cells(
    feeds: tuple[Feed, ...], pads: list[int], device: torch.device
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]:
    """(lane, position) of every fed token [N] in row order, and its (row, column) where there are pads."""
    places = [(row, pads[row] + i) for row, feed in enumerate(feeds) for i in range(len(feed.tokens))]
    table = [*zip(*cells_of(feeds), strict=True), *zip(*places, strict=True)]
    lanes, positions, rows, columns = upload(table, device)
    return (lanes, positions), (rows, columns) if any(pads) else None
