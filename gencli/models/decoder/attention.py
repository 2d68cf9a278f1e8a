"""Attention of one pass: which queries read which keys, prepared once for all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gencli.core.step import Feed

__all__ = ["AttentionPlan", "attend"]


@dataclass(frozen=True, slots=True)
class _Block:
    """Queries that one kernel call computes: L lanes with W queries each.

    `columns` are their places among the fed tokens, `rows` the rows of the KV buffers, `first` to `end` the
    keys. `mask` is additive, [L, 1, W, K]; None lets each query see the keys up to its own place.
    """

    columns: slice
    rows: slice
    width: int
    first: int
    end: int
    mask: Tensor | None

    @property
    def is_causal(self) -> bool:
        return self.mask is None and self.width > 1


@dataclass(slots=True)
class AttentionPlan:
    """The feeds of a pass, with buffer rows as lanes. The blocks of each window are made once."""

    feeds: Sequence[Feed]
    dtype: torch.dtype
    device: torch.device
    _blocks: dict[int | None, list[_Block]] = field(default_factory=dict)

    def blocks(self, window: int | None) -> list[_Block]:
        """Return the kernel calls for a layer with this window in tokens (None: all keys)."""
        if window not in self._blocks:
            self._blocks[window] = self._make(window)
        return self._blocks[window]

    def _make(self, window: int | None) -> list[_Block]:
        made: list[_Block] = []
        column, index = 0, 0
        while index < len(self.feeds):
            group = self._group(index)
            width = len(self.feeds[index].tokens)
            made.append(self._block(group, column, width, window))
            column += width * len(group)
            index += len(group)
        return made

    def _group(self, index: int) -> Sequence[Feed]:
        """Return the feeds from `index` on that share a call: on a GPU, one token each in adjacent rows.

        On a CPU each lane has its own call. In a shared one its bits would depend on the longest lane, and on
        how many heads there are for each thread.
        """
        first = self.feeds[index]
        if len(first.tokens) > 1 or self.device.type == "cpu":
            return [first]
        group = [first]
        for feed in self.feeds[index + 1 :]:
            if len(feed.tokens) > 1 or feed.lane != group[-1].lane + 1:
                break
            group.append(feed)
        return group

    def _block(self, group: Sequence[Feed], column: int, width: int, window: int | None) -> _Block:
        end = max(feed.start for feed in group) + width
        lowest = min(feed.start for feed in group)
        first = max(0, lowest + 1 - window) if window else 0
        is_whole = (width == 1 and lowest + 1 == end) or (len(group) == 1 and lowest == 0)
        needs_mask = not is_whole or (window is not None and end - first > window)
        return _Block(
            slice(column, column + width * len(group)),
            slice(group[0].lane, group[-1].lane + 1),
            width,
            first,
            end,
            self._mask(group, width, first, end, window) if needs_mask else None,
        )

    def _mask(self, group: Sequence[Feed], width: int, first: int, end: int, window: int | None) -> Tensor:
        """Return the additive mask [L, 1, W, K]: 0 for the keys that a query sees, else minus infinity."""
        starts = torch.tensor([feed.start for feed in group])
        places = (starts[:, None] + torch.arange(width))[:, :, None]
        keys = torch.arange(first, end)
        hidden = keys > places
        if window:
            hidden |= keys <= places - window
        mask = torch.zeros(hidden.shape, dtype=self.dtype).masked_fill(hidden, -torch.inf)
        return mask[:, None].to(self.device, non_blocking=True)


def attend(
    plan: AttentionPlan,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    window: int | None,
    scale: float,
    cap: float | None,
) -> Tensor:
    """Return the attention [N, Hq * D] of queries [N, Hq, D] over KV buffers [rows, Hkv, capacity, D]."""
    blocks = plan.blocks(window)
    parts = [_attend(block, queries[block.columns], keys, values, scale, cap) for block in blocks]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend(
    block: _Block, queries: Tensor, keys: Tensor, values: Tensor, scale: float, cap: float | None
) -> Tensor:
    held = slice(block.first, block.end)
    # Keys and values in a smaller format are widened: the sums are those of the queries' format.
    keys = keys[block.rows, :, held].to(queries.dtype)
    values = values[block.rows, :, held].to(queries.dtype)
    lanes, heads = keys.shape[:2]
    count, query_heads, width = queries.shape
    if cap is not None:
        made = _capped(block, queries, keys, values, scale, cap)
    elif block.width == 1:
        # The query heads of a key head become queries of that head, so that keys are read once.
        grouped = queries.reshape(lanes, heads, query_heads // heads, width)
        made = scaled_dot_product_attention(grouped, keys, values, attn_mask=block.mask, scale=scale)
        return made.reshape(count, query_heads * width)
    else:
        made = scaled_dot_product_attention(
            queries.view(lanes, block.width, query_heads, width).transpose(1, 2),
            keys,
            values,
            attn_mask=block.mask,
            is_causal=block.is_causal,
            scale=scale,
            enable_gqa=query_heads != heads,
        )
    return made.transpose(1, 2).reshape(count, query_heads * width)


def _capped(block: _Block, queries: Tensor, keys: Tensor, values: Tensor, scale: float, cap: float) -> Tensor:
    """Return attention [L, Hq, W, D] with scores cap * tanh(score / cap), which no kernel has."""
    lanes, heads = keys.shape[:2]
    query_heads, width = queries.shape[1:]
    grouped = queries.view(lanes, block.width, heads, query_heads // heads, width).permute(0, 2, 3, 1, 4)
    scores = torch.matmul(grouped, keys[:, :, None].transpose(-1, -2)) * scale
    scores = (scores / cap).tanh_() * cap
    if block.mask is not None:
        scores += block.mask[:, :, None]
    elif block.is_causal:
        length = scores.shape[-1]
        hidden = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu_(1)
        scores.masked_fill_(hidden, -torch.inf)
    weights = scores.softmax(-1, dtype=torch.float32).to(queries.dtype)
    return torch.matmul(weights, values[:, :, None]).reshape(lanes, query_heads, block.width, width)
