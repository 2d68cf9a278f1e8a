"""Attention of few queries over many keys on a CPU, by PyTorch's embedding-bag kernel.

A bag is a weighted sum of rows of a table: sum of w_j * table[i_j]. Scores are sums of the rows of transposed
keys, weighted by a query; the result is one of values, weighted by probabilities. The kernel adds up each sum
in the order of its rows, on one thread. So a token's attention has the same bits whatever other tokens are in
the call, and a call serves lanes of any length.

Keys are stored in tiles, [rows, Hkv, tiles, D, TILE], in the place of [rows, Hkv, capacity, D].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["TILE", "Bags", "cells", "dense_keys", "make_bags"]

TILE = 64  # tokens; divides the capacity of a buffer


@dataclass(frozen=True, slots=True)
class Bags:
    """Rows of the bags of N tokens with S keys each, a multiple of TILE; some of them are hidden.

    `heads` are Hkv and Hq / Hkv. `key_rows` are rows of a buffer seen as [?, TILE], one for each dimension of
    each tile, `value_rows` rows of the buffer seen as [?, D], one for each key; the starts are where each bag
    begins. `mask` [N, 1, 1, S / TILE, TILE] is minus infinity for hidden keys.
    """

    heads: tuple[int, int]
    key_rows: Tensor
    key_starts: Tensor
    value_rows: Tensor
    value_starts: Tensor
    mask: Tensor

    def attend(self, queries: Tensor, buffer: Tensor, scale: float, cap: float | None) -> Tensor:
        """Return the attention [N, Hq * D] of queries [N, Hq, D] over a buffer [rows, 2 * Hkv, C, D]."""
        (heads, group), width = self.heads, queries.shape[-1]
        count, tiles = self.mask.shape[0], self.mask.shape[3]
        weights = queries.view(count, heads, 1, group, width).expand(-1, -1, tiles, -1, -1) * scale
        sums = _sums(buffer.view(-1, TILE), self.key_rows, self.key_starts, weights.view(-1))
        scores = sums.view(count, heads, tiles, group, TILE).transpose(2, 3)
        if cap is not None:
            scores = (scores / cap).tanh_() * cap
        visible = torch.add(scores, self.mask, out=sums.new_empty(count, heads, group, tiles, TILE))
        shares = visible.flatten(-2).softmax(-1)
        made = _sums(buffer.view(-1, width), self.value_rows, self.value_starts, shares.view(-1))
        return made.view(count, -1)


def make_bags(
    rows: Sequence[int], ends: Sequence[int], shape: Sequence[int], num_heads: int, window: int | None
) -> Bags:
    """Return the bags of tokens in buffer `rows`, each of which sees the keys before its end.

    `shape` is that of the buffers, [rows, 2 * Hkv, C, D]. With a window only its last keys are seen.
    """
    _, double, capacity, width = shape
    heads = double // 2
    group = num_heads // heads
    row, end = torch.tensor([rows, ends], dtype=torch.int32)[..., None, None, None]
    first = (end - window).clamp_(min=0) if window else torch.zeros_like(end)
    base = first // TILE
    tiles = int(((end - 1) // TILE - base).max()) + 1
    head = torch.arange(heads, dtype=torch.int32)[:, None, None] + row * double  # [N, Hkv, 1, 1]
    places = torch.arange(tiles * TILE, dtype=torch.int32) + base * TILE  # [N, 1, 1, S]
    is_hidden = (places >= end) | (places < first)
    # Rows of tiles and keys behind the end are replaced by one that is in the CPU cache.
    tile = torch.arange(tiles, dtype=torch.int32)[:, None] + base  # [N, 1, tiles, 1]
    dims = torch.arange(width, dtype=torch.int32)
    key_rows = torch.where(tile * TILE < end, tile * width + dims, base * width)
    key_rows = key_rows + head * (capacity * width // TILE)  # [N, Hkv, tiles, D]
    value_rows = torch.where(places < end, places, base * TILE) + (head + heads) * capacity  # [N, Hkv, 1, S]
    count = len(rows) * num_heads
    return Bags(
        (heads, group),
        key_rows[:, :, :, None].expand(-1, -1, -1, group, -1).flatten(),
        torch.arange(0, count * tiles * width, width, dtype=torch.int32),
        value_rows.expand(-1, -1, group, -1).flatten(),
        torch.arange(0, count * tiles * TILE, tiles * TILE, dtype=torch.int32),
        torch.zeros(is_hidden.shape).masked_fill_(is_hidden, -torch.inf).view(-1, 1, 1, tiles, TILE),
    )


def cells(rows: Sequence[int], places: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Return the places of the keys and values [N, 2 * Hkv, D] of N tokens in a flat buffer."""
    _, double, capacity, width = shape
    row, place = torch.tensor([rows, places])[..., None, None]
    start = (torch.arange(double)[:, None] + row * double) * (capacity * width)  # [N, 2 * Hkv, 1]
    dims = torch.arange(width)
    keys = (place // TILE * width + dims) * TILE + place % TILE
    values = place * width + dims
    is_key = torch.arange(double)[:, None] < double // 2
    found: Tensor = start + torch.where(is_key, keys, values)
    return found.flatten()


def dense_keys(buffer: Tensor, row: int, first: int, end: int) -> Tensor:
    """Return the keys of the tokens from `first` to `end` of a row as [1, Hkv, end - first, D]."""
    _, double, capacity, width = buffer.shape
    tiles = buffer[row, : double // 2].view(-1, capacity // TILE, width, TILE)
    base = first // TILE
    held = tiles[None, :, base : -(-end // TILE)].transpose(-1, -2).flatten(2, 3)
    return held[:, :, first - base * TILE : end - base * TILE]


def _sums(table: Tensor, rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of the table's rows for each bag, [bags, table width]."""
    made: Tensor = torch.ops.aten._embedding_bag_forward_only(
        table, rows, starts, False, 0, False, weights, False, -1
    )[0]
    return made
