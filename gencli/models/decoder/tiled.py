"""Attention of one pass on a CPU in float32, over keys in tiles (see bags)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Unpack

import torch
from torch import Tensor

from gencli.core.step import Feed
from gencli.models.decoder.attention import Block, Scoring, make_block
from gencli.models.decoder.bags import Bags, BagTables, Cells, dense_keys

__all__ = ["TiledPlan"]

# The tokens of a feed up to this length are bags. Longer ones share the keys in a matrix product, which is
# faster, but has other bits.
_MOST_TOKENS = 16
_MOST_NUMBERS = 2**23  # in a table of bags, to bound memory


@dataclass(frozen=True, slots=True)
class _Short:
    """Tokens that one call of bags computes, and their places among the fed tokens."""

    columns: slice | Tensor
    bags: Bags


class TiledPlan:
    """Tokens of short feeds, which are decode steps and drafts, are bags; each longer feed has its own call.

    `feeds` have buffer rows as lanes, `held` has the (row, position) of each fed token.
    """

    def __init__(
        self,
        feeds: Sequence[Feed],
        held: Sequence[tuple[int, int]],
        cells: Cells,
        tables: BagTables,
        num_heads: int,
    ) -> None:
        self._feeds, self._held, self._num_heads = feeds, held, num_heads
        self._shape, self._tables = cells.shape, tables
        self._cells = cells.of(held)
        self._parts: dict[int | None, tuple[list[_Short], list[tuple[Feed, Block]]]] = {}

    def store(self, held: Tensor, buffer: Tensor) -> None:
        """Write keys and values, as AttentionPlan.store."""
        buffer.view(-1).scatter_(0, self._cells, held.reshape(-1))

    def attend(self, made: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Return the attention, as AttentionPlan.attend."""
        window, scale, cap, sinks = how["window"], how["scale"], how["cap"], how.get("sinks")
        if window not in self._parts:
            self._parts[window] = self._make(window)
        short, long = self._parts[window]
        queries = made[:, : self._num_heads]
        if len(short) == 1 and not long:
            return short[0].bags.attend(queries, buffer, cap, sinks)
        out = made.new_empty(len(made), self._num_heads * made.shape[-1])
        for part in short:
            out[part.columns] = part.bags.attend(queries[part.columns], buffer, cap, sinks)
        for feed, block in long:
            keys, values = self._dense(feed, block, made, buffer)
            out[block.columns] = block.attend(queries[block.columns], keys, values, scale, cap, sinks)
        return out

    def _dense(self, feed: Feed, block: Block, made: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values [1, Hkv, K, D] of a block; those of a lane's first tokens are in `made`."""
        heads = self._shape[1] // 2
        if feed.start == 0 and block.first == 0:
            held = made[block.columns, self._num_heads :].transpose(0, 1)[None]
            return held[:, :heads], held[:, heads:]
        keys = dense_keys(buffer, feed.lane, block.first, block.end)
        return keys, buffer[block.rows, heads:, block.first : block.end]

    def _make(self, window: int | None) -> tuple[list[_Short], list[tuple[Feed, Block]]]:
        short: list[range] = []
        long: list[tuple[Feed, Block]] = []
        column = 0
        for feed in self._feeds:
            tokens = range(column, column + len(feed.tokens))
            if len(tokens) <= _MOST_TOKENS:
                short.append(tokens)
            else:
                block = make_block([feed], column, window, dtype=torch.float32, device=torch.device("cpu"))
                long.append((feed, block))
            column = tokens.stop
        columns = list(chain.from_iterable(short))
        groups = self._groups(columns)
        return [self._short(part, window, place) for place, part in enumerate(groups)], long

    def _groups(self, columns: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield the tokens in groups whose tables hold a bounded count of numbers."""
        if not columns:
            return
        keys = max(self._held[column][1] for column in columns) + 1
        most = max(1, _MOST_NUMBERS // (keys * self._num_heads))
        for start in range(0, len(columns), most):
            yield columns[start : start + most]

    def _short(self, columns: Sequence[int], window: int | None, place: int) -> _Short:
        rows, places = zip(*(self._held[column] for column in columns), strict=True)
        ends = [position + 1 for position in places]
        bags = self._tables.bags(rows, ends, self._shape, window, place=(window, place))
        if columns[-1] - columns[0] + 1 == len(columns):
            return _Short(slice(columns[0], columns[-1] + 1), bags)
        return _Short(torch.tensor(columns), bags)
