"""Feeds of different length in one forward pass of transformers: padded or packed in one row, the
attention of each lane, and the masks, built from per-lane positions by the model's own mask function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from gencli.core.request import Feed
from gencli.models.kv.lane_buffers import cells_of, wanted_of
from gencli.models.rope import setting
from processors.graphs import upload


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
    target = source = None
    if start is None or not is_range:
        cells = [(row, pads[row] + i) for row, feed in enumerate(feeds) for i in range(len(feed.tokens))]
        indices = [*cells_of(feeds), *zip(*cells, strict=True)]
        lanes, lane_positions, rows, columns = upload(indices, device)
        target, source = (lanes, lane_positions), (rows, columns) if any(pads) else None
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
    lanes, positions = cells_of(feeds)
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


_Attention = Callable[..., tuple[Tensor, "Tensor | None"]]


@dataclass(frozen=True, slots=True)
class QuerySplit:
    """Queries of feeds of one width W, over L lanes.

    `columns` are the L * W query columns in the row. `lanes` are the L rows of the KV buffers, read up to
    `kv_length` tokens. `kept` [F] are the indices of the feeds among the L lanes, None for all; the others
    are idle lanes, included where that is cheaper than copying.
    """

    columns: slice | Tensor
    lanes: slice | Tensor
    width: int
    kv_length: int
    kept: Tensor | None = None

    def take(self, values: Tensor) -> Tensor:
        """Return the columns of values [1, H, N, X] as [L, H, W, X]."""
        taken = values[0, :, self.columns]
        return taken.view(len(taken), -1, self.width, taken.shape[-1]).transpose(0, 1)


class _Layout:
    """The query splits of the current pass, and the mask of each, cached for all layers."""

    def __init__(self, query_splits: tuple[QuerySplit, ...]) -> None:
        self.query_splits = query_splits
        self._masks: dict[int, tuple[Tensor, list[Tensor]]] = {}

    def masks(self, mask: Tensor) -> list[Tensor]:
        """Return the mask [1, 1, N, K] as one [L, 1, W, K] for each split."""
        if id(mask) not in self._masks:
            own_masks = [split.take(mask)[..., : split.kv_length] for split in self.query_splits]
            self._masks[id(mask)] = mask, [mark_spans(m) if m.dtype == torch.bool else m for m in own_masks]
        return self._masks[id(mask)][1]


_layout: ContextVar[_Layout | None] = ContextVar("layout", default=None)


def packed_layout(query_splits: tuple[QuerySplit, ...]) -> AbstractContextManager[None]:
    """While active, `attend` splits packed queries into `query_splits`; no effect if there are none."""
    return setting(_layout, _Layout(query_splits) if query_splits else None)


def attend(
    attention: _Attention,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Call an attention function of transformers, once per query split inside `packed_layout`.

    In the packed layout query is [1, H, N, D], key and value [lanes, H, K, D], the mask [1, 1, N, K], the
    result [1, N, H, D]. The mask may be positional or named, as models do both.
    """
    layout = _layout.get()
    if layout is None:
        return attention(module, query, key, value, attention_mask, **kwargs)
    assert attention_mask is not None
    outputs = []
    for split, mask in zip(layout.query_splits, layout.masks(attention_mask), strict=True):
        keys, values = (held[split.lanes, :, : split.kv_length] for held in (key, value))
        out = attention(module, split.take(query), keys, values, mask, **kwargs)[0]
        outputs.append((out if split.kept is None else out[split.kept]).flatten(0, 1))
    return torch.cat(outputs)[None], None


# Masked keys per lane, on average, that cost as much as one more kernel call (7 us; 0.1 us per key).
_MIN_MASKED_KEYS = 64


def mark_spans(mask: Tensor) -> Tensor:
    """Return the boolean mask [B, 1, Q, K], with `spans` = (first, end) of the keys each lane sees.

    `spans` is set only where per-lane attention is faster: Q = 1, B > 1, on a CPU, enough masked keys, and
    the keys of every lane contiguous.
    """
    if mask.device.type != "cpu" or mask.shape[2] > 1 or mask.shape[0] == 1:
        return mask
    seen = mask[:, 0, 0]
    counts = seen.sum(1)
    if int(seen.shape[1] * len(counts) - counts.sum()) < _MIN_MASKED_KEYS * len(counts):
        return mask
    first = seen.int().argmax(1)
    # Distinct positions from `first` on have the smallest sum if they are contiguous.
    sums = (seen * torch.arange(seen.shape[1])).sum(1)
    if bool((2 * sums == counts * (2 * first + counts - 1)).all()):
        cast(Any, mask).spans = torch.stack([first, first + counts], 1).tolist()
    return mask


def lane_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return SDPA attention [B, Q, H, D], computed per lane if the mask has `spans`."""
    spans = getattr(attention_mask, "spans", None)
    if spans is None or kwargs.get("position_bias") is not None or kwargs.get("softcap") is not None:
        out = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return cast("tuple[Tensor, Tensor | None]", out)
    # Query heads that share a key head become queries of that head.
    grouped = query.reshape(len(spans), key.shape[1], -1, query.shape[3])
    lanes = [
        scaled_dot_product_attention(
            grouped[lane, None], key[lane, None, :, first:end], value[lane, None, :, first:end], scale=scaling
        )
        for lane, (first, end) in enumerate(spans)
    ]
    return torch.cat(lanes).view(len(spans), 1, query.shape[1], -1), None


_SDPA, _EAGER = "gencli_sdpa", "gencli_eager"
_is_static: ContextVar[bool] = ContextVar("is_static", default=False)


def static_masks() -> AbstractContextManager[None]:
    """While active, masks are additive ones that the host does not look at.

    SDPA would make an additive mask of a boolean one again in each layer.
    """
    return setting(_is_static, True)


def use_lane_masks(model: Any) -> bool:
    """Switch the model to lane masks, keeping its attention kernel; return whether it supports that."""
    names = {"sdpa": _SDPA, _SDPA: _SDPA, "eager": _EAGER, _EAGER: _EAGER}
    name = names.get(model.config._attn_implementation)
    if name is None or not getattr(model, "_supports_attention_backend", False):
        return False
    AttentionInterface.register(_SDPA, partial(attend, lane_attention))
    AttentionInterface.register(_EAGER, partial(attend, _own_eager_attention))
    AttentionMaskInterface.register(_SDPA, partial(_lane_mask, sdpa_mask))
    AttentionMaskInterface.register(_EAGER, partial(_lane_mask, eager_mask))
    model.set_attn_implementation(name)
    return bool(model.config.get_text_config(decoder=True)._attn_implementation == name)


def _own_eager_attention(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    # The one in the module's own file: architectures differ in it (sinks, softcaps).
    return sys.modules[type(module).__module__].__dict__["eager_attention_forward"](module, *args, **kwargs)


def _lane_mask(
    library_mask: Callable[..., Any],
    *,
    q_offset: int | Tensor,
    mask_function: Callable[..., Tensor],
    **kwargs: Any,
) -> Tensor | None:
    """Return the mask [B, 1, Q, K], boolean or in the additive form of eager attention, or None without need.

    `q_offset` is the result of LaneCache.get_query_offset: the common first position, or positions [B, Q].
    """
    if isinstance(q_offset, int):
        mask = library_mask(q_offset=q_offset, mask_function=mask_function, **kwargs)
        return cast("Tensor | None", mask)
    batch, device = q_offset.shape[0], q_offset.device
    rows = torch.arange(batch, device=device)[:, None, None, None]
    head = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=device)
    keys = torch.arange(kwargs["kv_length"], device=device)[None, None, None, :]
    seen = mask_function(rows, head, q_offset[:, None, :, None], keys)
    seen = seen.expand(batch, 1, q_offset.shape[1], -1)
    if library_mask is sdpa_mask and not _is_static.get():
        return mark_spans(seen)
    lowest = torch.finfo(kwargs["dtype"]).min
    return torch.zeros(seen.shape, dtype=kwargs["dtype"], device=device).masked_fill(~seen, lowest)
