"""Attention of few queries over many keys on a CPU, by PyTorch's embedding-bag kernel.

A bag is a weighted sum of rows of a table: sum of w_j * table[i_j]. Scores are sums of the rows of transposed
keys, weighted by a query; the result is one of values, weighted by probabilities. The kernel adds up each sum
in the order of its rows, on one thread. So a token's attention has the same bits whatever other tokens are in
the call, and a call serves lanes of any length.

Keys are stored in tiles, [rows, Hkv, tiles, D, TILE], in the place of [rows, Hkv, capacity, D].
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gencli.models.decoder.sinks import shares

__all__ = ["TILE", "BagTables", "Bags", "Cells", "dense_keys"]

TILE = 64  # tokens; divides the capacity of a buffer


@dataclass(frozen=True, slots=True)
class _Spans:
    """The tiles that each token reads: its buffer row, the first tile, and the number of tiles."""

    rows: tuple[int, ...]
    firsts: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Tables:
    """Rows of the bags of N tokens with `tiles` tiles each, of which a token may need fewer.

    `key_rows` are rows of a buffer seen as [?, TILE], one for each dimension of each tile, `value_rows` rows
    of the buffer seen as [?, D], one for each key; the starts are where each bag begins. `scales`
    [tiles, 1, 1] has the factor of scores, `places` the positions of keys, [N, 1, 1, tiles, TILE].
    """

    tiles: int
    key_rows: Tensor
    key_starts: Tensor
    value_rows: Tensor
    value_starts: Tensor
    scales: Tensor
    places: Tensor


@dataclass(frozen=True, slots=True)
class Bags:
    """The bags of N tokens. `heads` are Hkv and Hq / Hkv, `mask` is minus infinity for hidden keys."""

    heads: tuple[int, int]
    tables: _Tables
    mask: Tensor

    def attend(
        self, queries: Tensor, buffer: Tensor, cap: float | None, sinks: Tensor | None = None
    ) -> Tensor:
        """Return the attention [N, Hq * D] of queries [N, Hq, D] over a buffer [rows, 2 * Hkv, C, D].

        Scores become cap * tanh(score / cap) where a cap is given. `sinks` [Hq] are as for
        AttentionPlan.attend.
        """
        (heads, group), tables, width = self.heads, self.tables, queries.shape[-1]
        count = len(queries)
        weights = queries.view(count, heads, 1, group, width) * tables.scales
        scores = _sums(buffer.view(-1, TILE), tables.key_rows, tables.key_starts, weights.view(-1))
        scores = scores.view(count, heads, tables.tiles, group, TILE)
        if cap is not None:
            scores = scores.div_(cap).tanh_().mul_(cap)
        if group == 1 or tables.tiles == 1:
            visible = scores.view(count, heads, group, tables.tiles, TILE).add_(self.mask)
        else:
            visible = scores.new_empty(count, heads, group, tables.tiles, TILE)
            torch.add(scores.transpose(2, 3), self.mask, out=visible)
        whole = visible.view(count, heads * group, tables.tiles * TILE)
        weighed = shares(whole, None if sinks is None else sinks[:, None])
        made = _sums(buffer.view(-1, width), tables.value_rows, tables.value_starts, weighed.reshape(-1))
        return made.view(count, -1)


class BagTables:
    """Make bags over buffers [rows, 2 * Hkv, C, D]. Scores are multiplied by `scale`.

    The last tables are kept, because many steps in turn need the same ones.
    """

    def __init__(self, num_heads: int, scale: float) -> None:
        self._num_heads, self._scale = num_heads, scale
        self._kept: dict[Hashable, tuple[tuple[_Spans, Sequence[int]], _Tables]] = {}

    def bags(
        self,
        rows: Sequence[int],
        ends: Sequence[int],
        shape: Sequence[int],
        window: int | None,
        *,
        place: Hashable,
    ) -> Bags:
        """Return the bags of tokens in buffer `rows`, each of which sees the keys before its end.

        `shape` is that of the buffers. With a window only its last keys are seen. `place` is what the tables
        are kept under: calls with the same one are expected to be alike.
        """
        firsts = [max(0, end - window) for end in ends] if window else [0] * len(ends)
        bases = tuple(first // TILE for first in firsts)
        counts = tuple((end - 1) // TILE + 1 - base for end, base in zip(ends, bases, strict=True))
        key = _Spans(tuple(rows), bases, counts), shape
        if place not in self._kept or self._kept[place][0] != key:
            self._kept[place] = key, self._make(key[0], shape)
        tables = self._kept[place][1]
        bounds = torch.tensor([ends, firsts], dtype=torch.int32)[..., None, None, None, None]
        is_seen = tables.places < bounds[0]
        if window:
            is_seen &= tables.places >= bounds[1]
        heads = shape[1] // 2
        return Bags((heads, self._num_heads // heads), tables, torch.where(is_seen, 0.0, -torch.inf))

    def clear(self) -> None:
        """Free the kept tables."""
        self._kept.clear()

    def _make(self, spans: _Spans, shape: Sequence[int]) -> _Tables:
        _, double, capacity, width = shape
        heads = double // 2
        group = self._num_heads // heads
        row, base, count = torch.tensor([spans.rows, spans.firsts, spans.counts], dtype=torch.int32)[
            ..., None
        ]
        tiles = max(spans.counts)
        number = torch.arange(tiles, dtype=torch.int32)
        tile = number + base  # [N, tiles]
        # A tile that a token does not need is replaced by one row of its first tile.
        is_read = (number < count)[:, :, None]
        dims, tokens = torch.arange(width, dtype=torch.int32), torch.arange(TILE, dtype=torch.int32)
        places = tile[:, :, None] * TILE + tokens
        key_rows = torch.where(is_read, tile[:, :, None] * width + dims, base[:, :, None] * width)
        value_rows = torch.where(is_read, places, base[:, :, None] * TILE).flatten(1)
        head = torch.arange(heads, dtype=torch.int32) + row * double  # [N, Hkv]
        key_rows = key_rows[:, None] + (head * (capacity * width // TILE))[:, :, None, None]
        value_rows = value_rows[:, None] + ((head + heads) * capacity)[:, :, None]
        size = len(spans.rows) * self._num_heads * tiles
        return _Tables(
            tiles,
            key_rows[:, :, :, None].expand(-1, -1, -1, group, -1).flatten(),
            torch.arange(0, size * width, width, dtype=torch.int32),
            value_rows[:, :, None].expand(-1, -1, group, -1).flatten(),
            torch.arange(0, size * TILE, tiles * TILE, dtype=torch.int32),
            torch.full((tiles, 1, 1), self._scale),
            places[:, None, None],
        )


class Cells:
    """Where keys and values [2 * Hkv, D] of a token lie in a flat buffer of `shape` [rows, 2 * Hkv, C, D]."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = shape
        _, double, capacity, width = shape
        heads = torch.arange(double)[:, None] * (capacity * width)
        dims = torch.arange(width)
        both = heads[: double // 2] + dims * TILE, heads[double // 2 :] + dims
        self._numbers = torch.stack([numbers.flatten() for numbers in both])

    def of(self, held: Sequence[tuple[int, int]]) -> Tensor:
        """Return the places of the numbers of tokens, given by (row, position): [N * 2 * Hkv * D]."""
        _, double, capacity, width = self.shape
        size = double * capacity * width
        starts = [
            (row * size + place // TILE * width * TILE + place % TILE, row * size + place * width)
            for row, place in held
        ]
        found: Tensor = torch.tensor(starts)[:, :, None] + self._numbers
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
