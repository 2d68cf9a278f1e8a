"""Attention of one pass: its interfaces, and the plan by PyTorch's kernels, prepared once for all layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, Protocol, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gencli.core.step import Feed
from gencli.models.decoder.sinks import shares
from gencli.models.kv.formats import widened

__all__ = ["AttentionPlan", "Block", "DevicePlan", "Scoring", "SdpaPlan", "make_block"]


class Scoring(TypedDict):
    """Parameters of a layer's attention: weights = softmax([cap * tanh(scale * q.k / cap), sink])[:-1].

    `window` is the number of tokens that a token sees, itself included; None: all. Without a `cap` the scores
    are scale * q.k. `sinks` [Hq] float32: one learned score of each query head, which has no value.
    """

    window: int | None
    scale: float
    cap: float | None
    sinks: NotRequired[Tensor | None]


class AttentionPlan(Protocol):
    """The attention of one pass over N tokens."""

    def store(self, held: Tensor, buffer: Tensor) -> None:
        """Write the fed tokens' keys and values [N, 2 * Hkv, W] to a buffer [rows, 2 * Hkv, capacity, W].

        W is the stored width of D numbers (see kv.formats).
        """

    def attend(self, made: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Return the attention [N, Hq * D] of a layer.

        `made` [N, Hq + 2 * Hkv, D] has the queries, keys and values.
        """


class DevicePlan(ABC):
    """The attention of one pass over N tokens on CUDA.

    `cells` are their (row, position) indices [N] in the buffers.
    """

    cells: tuple[Tensor, Tensor]

    @abstractmethod
    def attend(self, queries: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Return the attention [N, Hq * D] of `queries` [N, Hq, D], as AttentionPlan.attend.

        The tokens' own keys and values are in the buffer already.
        """


@dataclass(frozen=True, slots=True)
class Block:
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
        """Whether each query sees the keys up to its own place."""
        return self.mask is None and self.width > 1

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scale: float,
        cap: float | None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Return the attention [L * W, Hq * D] of queries [L * W, Hq, D] over [L, Hkv, K, D]."""
        lanes, heads = keys.shape[:2]
        count, query_heads, width = queries.shape
        if cap is not None or sinks is not None:
            made = self._weighed(queries, keys, values, scale, cap, sinks)
        elif self.width == 1:
            # The query heads of a key head become queries of that head, so that keys are read once.
            grouped = queries.reshape(lanes, heads, query_heads // heads, width)
            made = scaled_dot_product_attention(grouped, keys, values, attn_mask=self.mask, scale=scale)
            return made.reshape(count, query_heads * width)
        else:
            made = scaled_dot_product_attention(
                queries.view(lanes, self.width, query_heads, width).transpose(1, 2),
                keys,
                values,
                attn_mask=self.mask,
                is_causal=self.is_causal,
                scale=scale,
                enable_gqa=query_heads != heads,
            )
        return made.transpose(1, 2).reshape(count, query_heads * width)

    def _weighed(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scale: float,
        cap: float | None,
        sinks: Tensor | None,
    ) -> Tensor:
        """Return attention [L, Hq, W, D] with a cap or sinks, which no kernel of PyTorch has."""
        lanes, heads = keys.shape[:2]
        query_heads, width = queries.shape[1:]
        grouped = queries.view(lanes, self.width, heads, query_heads // heads, width).permute(0, 2, 3, 1, 4)
        scores = torch.matmul(grouped, keys[:, :, None].transpose(-1, -2)) * scale
        if cap is not None:
            scores = (scores / cap).tanh_() * cap
        if self.mask is not None:
            scores += self.mask[:, :, None]
        elif self.is_causal:
            length = scores.shape[-1]
            hidden = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu_(1)
            scores.masked_fill_(hidden, -torch.inf)
        over = None if sinks is None else sinks.view(heads, -1, 1, 1)
        weights = shares(scores, over).to(queries.dtype)
        return torch.matmul(weights, values[:, :, None]).reshape(lanes, query_heads, self.width, width)


def make_block(
    group: Sequence[Feed],
    column: int,
    window: int | None,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> Block:
    """Return the block of feeds of equal width in adjacent rows; `column` is the first of their tokens."""
    width = len(group[0].tokens)
    end = max(feed.start for feed in group) + width
    lowest = min(feed.start for feed in group)
    first = max(0, lowest + 1 - window) if window else 0
    is_whole = (width == 1 and lowest + 1 == end) or (len(group) == 1 and lowest == 0)
    mask = None
    if not is_whole or (window is not None and end - first > window):
        mask = _mask(group, width, first, end, window, dtype).to(device, non_blocking=True)
    rows = slice(group[0].lane, group[-1].lane + 1)
    return Block(slice(column, column + width * len(group)), rows, width, first, end, mask)


def _mask(
    group: Sequence[Feed], width: int, first: int, end: int, window: int | None, dtype: torch.dtype
) -> Tensor:
    """Return the additive mask [L, 1, W, K]: 0 for the keys that a query sees, else minus infinity."""
    starts = torch.tensor([feed.start for feed in group])
    places = (starts[:, None] + torch.arange(width))[:, :, None]
    keys = torch.arange(first, end)
    hidden = keys > places
    if window:
        hidden |= keys <= places - window
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -torch.inf)[:, None]


class SdpaPlan:
    """The plan for an accelerator and for 16-bit numbers, over plain buffers.

    `feeds` have buffer rows as lanes; `cells` are the (row, position) indices [N] of the fed tokens.
    """

    def __init__(self, feeds: Sequence[Feed], cells: tuple[Tensor, Tensor], dtype: torch.dtype) -> None:
        self._feeds, self._cells, self._dtype = feeds, cells, dtype
        self._device = cells[0].device
        self._blocks: dict[int | None, list[Block]] = {}

    def store(self, held: Tensor, buffer: Tensor) -> None:
        """Write keys and values, as AttentionPlan.store."""
        if len(self._feeds) == 1:
            feed = self._feeds[0]
            buffer[feed.lane, :, feed.start : feed.end] = held.transpose(0, 1)
        else:
            buffer.transpose(1, 2)[self._cells] = held

    def attend(self, made: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Return the attention, as AttentionPlan.attend."""
        window, scaled = how["window"], (how["scale"], how["cap"], how.get("sinks"))
        if window not in self._blocks:
            self._blocks[window] = self._make(window)
        kv_heads = buffer.shape[1] // 2
        queries = made[:, : made.shape[1] - 2 * kv_heads]
        keys, values = buffer[:, :kv_heads], buffer[:, kv_heads:]
        parts = []
        for block in self._blocks[window]:
            held = (block.rows, slice(None), slice(block.first, block.end))
            # Keys and values in a smaller format are widened: the sums are those of the queries' format.
            read_keys, read_values = (widened(part[held], queries.dtype) for part in (keys, values))
            parts.append(block.attend(queries[block.columns], read_keys, read_values, *scaled))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _make(self, window: int | None) -> list[Block]:
        made: list[Block] = []
        column, index = 0, 0
        while index < len(self._feeds):
            group = self._group(index)
            made.append(make_block(group, column, window, dtype=self._dtype, device=self._device))
            column = made[-1].columns.stop
            index += len(group)
        return made

    def _group(self, index: int) -> Sequence[Feed]:
        """Return the feeds from `index` on that share a call: on a GPU, one token each in adjacent rows.

        On a CPU each lane has its own call. In a shared one its bits would depend on the longest lane, and on
        how many heads there are for each thread.
        """
        first = self._feeds[index]
        if len(first.tokens) > 1 or self._device.type == "cpu":
            return [first]
        group = [first]
        for feed in self._feeds[index + 1 :]:
            if len(feed.tokens) > 1 or feed.lane != group[-1].lane + 1:
                break
            group.append(feed)
        return group
