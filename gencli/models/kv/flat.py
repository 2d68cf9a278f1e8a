"""Packed layout: feeds of different length in one forward pass without pads, as a single row of tokens.

All layers except attention handle each token independently, so one row can hold tokens of all lanes.
"""

from __future__ import annotations

from itertools import groupby

import torch
from torch import Tensor

from gencli.core.step import Feed, cells_of, wanted_of
from gencli.models.kv.packed_attention import QuerySplit
from gencli.models.kv.padded import ForwardBatch, fill_gaps
from processors.upload import upload

__all__ = ["FLAT_MODELS", "make_packed_batch"]

# Model types whose attention is one call per layer, and whose other layers handle each token independently.
# The tests run each of them in the packed layout.
FLAT_MODELS = frozenset(
    """
    apertus arcee bitnet cohere cohere2 ernie4_5 ernie4_5_moe exaone4 flex_olmo gemma gemma2
    gemma3_text glm glm4 glm4_moe gpt2 gpt_neox gpt_oss granite granitemoe llama ministral3 mistral
    mixtral nanochat nemotron olmo olmo2 olmo3 olmoe opt phi phi3 phimoe qwen2 qwen2_moe qwen3
    qwen3_moe seed_oss smollm3 starcoder2
    """.split()
)


def make_packed_batch(
    feeds: tuple[Feed, ...], device: torch.device, *, room: tuple[int, int], pad_budget: int
) -> ForwardBatch:
    """Return the packed batch of one pass: feeds by width, the longest first, then by lane.

    Idle lanes are included where that is cheaper than copying the other lanes, as in fill_gaps.
    """
    feeds = tuple(sorted(feeds, key=lambda feed: (-len(feed.tokens), feed.lane)))
    ids = [token for feed in feeds for token in feed.tokens]
    lanes, positions = zip(*cells_of(feeds), strict=True)
    packed = upload([ids, positions, lanes], device)
    wanted = wanted_of(feeds)
    query_splits, start = [], 0
    for _, same in groupby(feeds, key=lambda feed: len(feed.tokens)):
        members = tuple(same)
        query_splits.append(_query_split(members, start, device, pad_budget=pad_budget))
        start += len(members) * len(members[0].tokens)
    return ForwardBatch(
        feeds=feeds,
        ids=packed[:1],
        positions=packed[1:2],
        lanes=slice(None),
        room=room,
        start=None,
        kv_length=max(feed.end for feed in feeds),
        wanted=upload(wanted, device) if wanted else 0,
        target=(packed[2], packed[1]),
        source=None,
        query_splits=tuple(query_splits),
    )


def _query_split(feeds: tuple[Feed, ...], start: int, device: torch.device, *, pad_budget: int) -> QuerySplit:
    """Return the split of feeds of one width in lane order; the first feed begins at column `start`."""
    width, kv_length = len(feeds[0].tokens), max(feed.end for feed in feeds)
    columns: slice | Tensor = slice(start, start + width * len(feeds))
    filled = fill_gaps(feeds, pad_budget=pad_budget)
    first, last = filled[0].lane, filled[-1].lane
    if last - first + 1 > len(filled):
        return QuerySplit(columns, upload([feed.lane for feed in filled], device), width, kv_length)
    if filled == feeds:
        return QuerySplit(columns, slice(first, last + 1), width, kv_length)
    begins = {feed.lane: start + width * number for number, feed in enumerate(feeds)}
    # The output of an idle lane is discarded, so it can take the queries of the first feed.
    picked = [begins.get(feed.lane, start) + i for feed in filled for i in range(width)]
    kept = [number for number, feed in enumerate(filled) if feed.tokens]
    return QuerySplit(upload(picked, device), slice(first, last + 1), width, kv_length, upload(kept, device))
