"""Lanes that are fed more and fewer tokens in one pass without pads: a single row of tokens.

Everything in a model but attention looks at each token by itself, so that one row serves all lanes.
"""

from __future__ import annotations

from itertools import accumulate, groupby

import torch
from torch import Tensor

from gencli.core.step import Feed
from gencli.models.kv.packed_attention import Part
from gencli.models.kv.padded import Block, cells_of, end_of, fill_gaps
from processors.upload import upload

__all__ = ["FLAT_MODELS", "make_flat"]

# Model types whose attention is one call for each layer, and whose other layers look at no neighbours: those
# that the tests run in this way.
FLAT_MODELS = frozenset(
    """
    apertus arcee bitnet cohere cohere2 ernie4_5 ernie4_5_moe exaone4 flex_olmo gemma gemma2
    gemma3_text glm glm4 glm4_moe gpt2 gpt_neox gpt_oss granite granitemoe llama ministral3 mistral
    mixtral nanochat nemotron olmo olmo2 olmo3 olmoe opt phi phi3 phimoe qwen2 qwen2_moe qwen3
    qwen3_moe seed_oss smollm3 starcoder2
    """.split()
)


def make_flat(
    feeds: tuple[Feed, ...], device: torch.device, *, room: tuple[int, int], pad_budget: int
) -> Block:
    """Lay out one pass: feeds by their width, the longest first, and those of one width by lane.

    Idle lanes are looked at where that is cheaper than copying the others, as in fill_gaps.
    """
    feeds = tuple(sorted(feeds, key=lambda feed: (-len(feed.tokens), feed.lane)))
    ids = [token for feed in feeds for token in feed.tokens]
    lanes, positions = zip(*cells_of(feeds), strict=True)
    packed = upload([ids, positions, lanes], device)
    ends = [*accumulate(len(feed.tokens) for feed in feeds)]
    wanted = [
        place for feed, end in zip(feeds, ends, strict=True) for place in range(end - feed.num_logits, end)
    ]
    parts, start = [], 0
    for _, same in groupby(feeds, key=lambda feed: len(feed.tokens)):
        members = tuple(same)
        parts.append(_part(members, start, device, pad_budget=pad_budget))
        start += len(members) * len(members[0].tokens)
    return Block(
        feeds=feeds,
        ids=packed[:1],
        positions=packed[1:2],
        lanes=slice(None),
        room=room,
        start=None,
        kv_length=max(map(end_of, feeds)),
        wanted=upload(wanted, device) if wanted else 0,
        target=(packed[2], packed[1]),
        source=None,
        parts=tuple(parts),
    )


def _part(feeds: tuple[Feed, ...], start: int, device: torch.device, *, pad_budget: int) -> Part:
    """Feeds of one width and in lane order, the first of which begins at `start` in the row."""
    width, kv_length = len(feeds[0].tokens), max(map(end_of, feeds))
    place: slice | Tensor = slice(start, start + width * len(feeds))
    filled = fill_gaps(feeds, pad_budget=pad_budget)
    first, last = filled[0].lane, filled[-1].lane
    if last - first + 1 > len(filled):
        return Part(place, upload([feed.lane for feed in filled], device), width, kv_length)
    if filled == feeds:
        return Part(place, slice(first, last + 1), width, kv_length)
    begins = {feed.lane: start + width * number for number, feed in enumerate(feeds)}
    # What an idle lane is asked is thrown away: the first feed's queries will do.
    places = [begins.get(feed.lane, start) + i for feed in filled for i in range(width)]
    kept = [number for number, feed in enumerate(filled) if feed.tokens]
    return Part(upload(places, device), slice(first, last + 1), width, kv_length, upload(kept, device))
