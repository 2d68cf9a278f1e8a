"""Attention of one pass, prepared once for all layers: by PyTorch's kernels, on CUDA with prompts beside
decode steps, and on a CPU over keys in tiles, by PyTorch's embedding-bag kernel. A bag is a weighted
sum of rows of a table, sum of w_j * table[i_j]: scores are sums of the rows of transposed keys,
weighted by a query. The kernel adds up each sum in the order of its rows, on one thread, so a token's
attention has the same bits whatever other tokens the pass has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NotRequired, Protocol, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from gencli.core.request import Feed
from gencli.core.tree_shapes import num_straight
from gencli.models.decoder.kernels import attention_llvm
from gencli.models.decoder.kernels.attention import attend_chunk, attend_rows, shares
from gencli.models.decoder.kernels.attention_llvm import TILE
from gencli.models.decoder.kernels.layer_kernels import Norm, rotate_and_store
from gencli.models.kv.lane_buffers import MOST_ALONE, as_stored, widened
from processors.graphs import upload_ints


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
        """Write the fed tokens' keys and values [N, 2 * Hkv, D] to a buffer [rows, 2 * Hkv, capacity, W].

        W is the stored width of D numbers (see as_stored).
        """

    def attend(self, qkv: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Return the attention [N, Hq * D] of a layer.

        `qkv` [N, Hq + 2 * Hkv, D] has the queries, keys and values.
        """


class FusedPlan(ABC):
    """The attention of one pass over N tokens, with all that comes between two products.

    `cells` are their (row, position) indices [N] in the buffers.
    """

    cells: tuple[Tensor, Tensor]

    @abstractmethod
    def attend_fed(
        self,
        qkv: Tensor,
        buffer: Tensor,
        rope: tuple[Tensor, Tensor] | None,
        norms: tuple[Norm, Norm] | None,
        *,
        is_whole: bool,
        **how: Unpack[Scoring],
    ) -> Tensor:
        """Return the attention [N, Hq * D] of a layer; write keys and values to the buffer.

        `qkv` [N, Hq + 2 * Hkv, D] has queries, keys and values; rope and norms are those of rotate_and_store.
        """


class DevicePlan(FusedPlan):
    """The attention of one pass over N tokens on CUDA."""

    def attend_fed(
        self,
        qkv: Tensor,
        buffer: Tensor,
        rope: tuple[Tensor, Tensor] | None,
        norms: tuple[Norm, Norm] | None,
        *,
        is_whole: bool,
        **how: Unpack[Scoring],
    ) -> Tensor:
        queries = rotate_and_store(qkv, buffer, self.cells, rope, norms, is_whole=is_whole)
        return self.attend(queries, buffer, **how)

    @abstractmethod
    def attend(self, queries: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Return the attention [N, Hq * D] of `queries` [N, Hq, D], as AttentionPlan.attend.

        The tokens' own keys and values are in the buffer already.
        """


@dataclass(frozen=True, slots=True)
class Block:
    """Queries that one kernel call computes: L lanes with W queries each.

    `columns` are their places among the fed tokens, `rows` the rows of the KV buffers, `first` to `end` the
    keys. `mask` is additive, [L, 1, W, K]; None lets each query see the keys up to its own place or, unless
    the block `is_causal`, all of them.
    """

    columns: slice
    rows: slice
    width: int
    first: int
    end: int
    mask: Tensor | None
    is_causal: bool = True

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Return the attention [L * W, Hq * D] of queries [L * W, Hq, D] over [L, Hkv, K, D]."""
        (lanes, heads), (count, query_heads, width) = keys.shape[:2], queries.shape
        is_causal = self.is_causal and self.mask is None and self.width > 1
        scale, cap, sinks = how["scale"], how["cap"], how.get("sinks")
        if cap is None and sinks is None and self.width == 1:
            # The query heads of a key head become queries of that head, so that keys are read once.
            grouped = queries.reshape(lanes, heads, query_heads // heads, width)
            mixed = scaled_dot_product_attention(grouped, keys, values, attn_mask=self.mask, scale=scale)
            return mixed.reshape(count, query_heads * width)
        if cap is None and sinks is None:
            mixed = scaled_dot_product_attention(
                queries.view(lanes, self.width, query_heads, width).transpose(1, 2),
                keys,
                values,
                attn_mask=self.mask,
                is_causal=is_causal,
                scale=scale,
                enable_gqa=query_heads != heads,
            )
            return mixed.transpose(1, 2).reshape(count, query_heads * width)
        # No kernel of PyTorch has a cap or sinks.
        grouped = queries.view(lanes, self.width, heads, query_heads // heads, width).permute(0, 2, 3, 1, 4)
        scores = torch.matmul(grouped, keys[:, :, None].transpose(-1, -2)) * scale
        if cap is not None:
            scores = (scores / cap).tanh_() * cap
        if self.mask is not None:
            scores += self.mask[:, :, None]
        elif is_causal:
            length = scores.shape[-1]
            hidden = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu_(1)
            scores.masked_fill_(hidden, -torch.inf)
        over = None if sinks is None else sinks.view(heads, -1, 1, 1)
        mixed = torch.matmul(shares(scores, over).to(queries.dtype), values[:, :, None])
        return mixed.reshape(lanes, query_heads, self.width, width).transpose(1, 2).reshape(count, -1)


def apart(feeds: Iterable[Feed]) -> Iterator[Feed]:
    """Yield the feeds, each tree cut where it branches: what comes before is computed as any other text.

    Its tokens see all that is before them in the lane, at the positions of their places.
    """
    for feed in feeds:
        root = feed.end - len(feed.parents)
        first = num_straight(feed.parents)
        if first == len(feed.parents):
            yield feed._replace(parents=())
            continue
        cut = max(0, root + first - feed.start)
        if cut:
            yield feed._replace(tokens=feed.tokens[:cut], parents=())
        yield feed._replace(start=feed.start + cut, tokens=feed.tokens[cut:])


def _branch_mask(feed: Feed, first: int, window: int | None) -> Tensor:
    """Return which keys, from `first` to its end, the W tokens of a feed of nodes do not see, [1, W, K]."""
    root, sees = feed.end - len(feed.parents), list[list[bool]]()
    for node, parent in enumerate(feed.parents):
        sees.append([*sees[parent]] if parent >= 0 else [False] * len(feed.parents))
        sees[node][node] = True
    places = torch.tensor(feed._replace(start=root, tokens=feed.parents).positions)
    keys, positions = torch.cat([torch.arange(first, root), places]), places[feed.start - root :, None]
    hidden = torch.zeros(len(positions), len(keys), dtype=torch.bool)
    hidden[:, len(keys) - len(places) :] = ~torch.tensor(sees)[feed.start - root :]
    if window:
        hidden |= keys <= positions - window
    return hidden[None]


def make_block(
    group: Sequence[Feed], column: int, window: int | None, *, dtype: torch.dtype, device: torch.device
) -> Block:
    """Return the block of feeds of equal width in adjacent rows; `column` is the first of their tokens.

    A feed of nodes, none of which is before the first branch of its tree, has a block of its own.
    """
    width, starts, is_tree = len(group[0].tokens), [feed.start for feed in group], bool(group[0].parents)
    lowest, end = min(group[0].positions if is_tree else starts), max(starts) + width
    first = max(0, lowest + 1 - window) if window else 0
    if is_tree:
        first = min(first, end - len(group[0].parents))
    is_whole = (width == 1 and lowest + 1 == end) or (len(group) == 1 and lowest == 0)
    mask = None
    if is_tree or not is_whole or (window is not None and end - first > window):
        if is_tree:
            hidden = _branch_mask(group[0], first, window)
        else:
            positions = (torch.tensor(starts)[:, None] + torch.arange(width))[:, :, None]
            keys = torch.arange(first, end)
            hidden = keys > positions
            if window:
                hidden |= keys <= positions - window
        mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -torch.inf)[:, None]
        mask = mask.to(device, non_blocking=True)
    rows = slice(group[0].lane, group[-1].lane + 1)
    return Block(slice(column, column + width * len(group)), rows, width, first, end, mask)


def _by_length(feeds: Sequence[Feed], most: int) -> tuple[list[int], list[tuple[Feed, slice]]]:
    """Return the places of the tokens of feeds of at most `most` tokens, and the other feeds with theirs.

    These are longer, or branches of trees.
    """
    short, long, column = list[int](), list[tuple[Feed, slice]](), 0
    for feed in feeds:
        columns = slice(column, column + len(feed.tokens))
        if len(feed.tokens) <= most and not feed.parents:
            short += range(column, columns.stop)
        else:
            long.append((feed, columns))
        column = columns.stop
    return short, long


def _blocks(long: Iterable[tuple[Feed, slice]], window: int | None) -> list[tuple[Feed, Block]]:
    """Return the blocks of long feeds on a CPU, each of which has its own call."""
    make = partial(make_block, window=window, dtype=torch.float32, device=torch.device("cpu"))
    return [(feed, make([feed], columns.start)) for feed, columns in long]


class SdpaPlan:
    """The plan for an accelerator and for 16-bit numbers, over plain buffers.

    `feeds` have buffer rows as lanes; `cells` are the (row, position) indices [N] of the fed tokens. Without
    `is_causal` a token sees all tokens of its feed in layers that have no window.
    """

    def __init__(
        self,
        feeds: Sequence[Feed],
        cells: tuple[Tensor, Tensor],
        dtype: torch.dtype,
        *,
        is_causal: bool = True,
    ) -> None:
        self._feeds, self._cells, self._dtype, self._is_causal = feeds, cells, dtype, is_causal
        self._device = cells[0].device
        self._blocks: dict[int | None, list[Block]] = {}

    def store(self, held: Tensor, buffer: Tensor) -> None:
        held = as_stored(held, buffer.dtype)
        if len(self._feeds) == 1:
            feed = self._feeds[0]
            buffer[feed.lane, :, feed.start : feed.end] = held.transpose(0, 1)
        else:
            buffer.transpose(1, 2)[self._cells] = held

    def attend(self, qkv: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        window = how["window"]
        if window not in self._blocks:
            self._blocks[window] = self._make(window)
        kv_heads = buffer.shape[1] // 2
        queries = qkv[:, : qkv.shape[1] - 2 * kv_heads]
        keys, values = buffer[:, :kv_heads], buffer[:, kv_heads:]
        parts = []
        for block in self._blocks[window]:
            held = (block.rows, slice(None), slice(block.first, block.end))
            # Keys and values in a smaller format are widened: the sums are those of the queries' format.
            read_keys, read_values = (widened(part[held], queries.dtype) for part in (keys, values))
            parts.append(block.attend(queries[block.columns], read_keys, read_values, **how))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _make(self, window: int | None) -> list[Block]:
        """Return the blocks. On a GPU feeds of one token each in adjacent rows share a call.

        On a CPU each lane has its own call. In a shared one its bits would depend on the longest lane, and on
        how many heads there are for each thread.
        """
        groups: list[list[Feed]] = []
        for feed in self._feeds:
            last = groups[-1][-1] if groups and self._device.type != "cpu" else None
            is_next = last is not None and feed.lane == last.lane + 1 and not (last.parents or feed.parents)
            if last is not None and is_next and len(last.tokens) == len(feed.tokens) == 1:
                groups[-1].append(feed)
            else:
                groups.append([feed])
        blocks: list[Block] = []
        for group in groups:
            column = blocks[-1].columns.stop if blocks else 0
            first = group[0]
            if self._is_causal or window or len(first.tokens) == 1:
                block = make_block(group, column, window, dtype=self._dtype, device=self._device)
            else:
                width, rows = len(first.tokens), slice(first.lane, first.lane + 1)
                columns = slice(column, column + width)
                block = Block(columns, rows, width, 0, first.end, None, is_causal=False)
            blocks.append(block)
        return blocks


class MixedPlan(DevicePlan):
    """Short feeds are computed token by token, as by DecodePlan; each longer feed has its own plan.

    `feeds` have buffer rows as lanes. With `is_fixed` a token has the same bits in a feed of any length.
    """

    def __init__(
        self, feeds: Sequence[Feed], cells: tuple[Tensor, Tensor], end: int, *, is_fixed: bool
    ) -> None:
        self.cells = cells
        short, long = _by_length(feeds, MOST_ALONE)
        self._long: list[tuple[slice, Feed, FixedPlan | None]] = []
        for feed, columns in long:
            is_text = is_fixed and not feed.parents
            fixed = FixedPlan(cells[0][columns], cells[1][columns], feed.end) if is_text else None
            self._long.append((columns, feed, fixed))
        self._branches: dict[tuple[int, int | None], Block] = {}  # by column and window
        self._short = upload_ints(short, cells[0].device)
        self._plan = DecodePlan(cells[0][self._short], cells[1][self._short], end) if short else None

    def attend(self, queries: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        out = queries.new_empty(len(queries), queries[0].numel())
        if self._plan is not None:
            out[self._short] = self._plan.attend(queries[self._short], buffer, **how)
        for columns, feed, fixed in self._long:
            asked = queries[columns]
            if fixed is not None:
                out[columns] = fixed.attend(asked, buffer, **how)
                continue
            kv_heads, window = buffer.shape[1] // 2, how["window"]
            if feed.parents:
                key, dtype = (columns.start, window), queries.dtype
                if key not in self._branches:
                    made = make_block([feed], columns.start, window, dtype=dtype, device=queries.device)
                    self._branches[key] = made
                block = self._branches[key]
                held = widened(buffer[block.rows, :, block.first : block.end], dtype)
                out[columns] = block.attend(asked, held[:, :kv_heads], held[:, kv_heads:], **how)
                continue
            # In one call without a mask.
            first = max(0, feed.start + 1 - window) if window else 0
            held = widened(buffer[feed.lane, :, first : feed.end], queries.dtype).transpose(0, 1)
            out[columns] = attend_chunk(asked, held[:, :kv_heads], held[:, kv_heads:], **how)
        return out


def device_plan(
    feeds: Sequence[Feed], cells: tuple[Tensor, Tensor], end: int, *, is_fixed: bool
) -> DevicePlan:
    """Return the plan for feeds that have buffer rows as lanes.

    With `is_fixed` a token has the same bits in a feed of any length.
    """
    if all(len(feed.tokens) <= MOST_ALONE and not feed.parents for feed in feeds):
        return DecodePlan(*cells, end)
    return MixedPlan(feeds, cells, end, is_fixed=is_fixed)


_TOGETHER = 32  # tokens of a prompt that share the reads of their keys
_MAX_CELLS = 2**20  # keys that are looked at in a call, over all its tokens; what bounds the memory


class DecodePlan(DevicePlan):
    """N tokens that are computed one by one. Shapes depend on N and `end` alone: a graph can record it.

    `rows` [N] int64 are the rows of the KV buffers, `positions` [N] int64 the tokens' places. `end` bounds
    the keys that are looked at: it is beyond every position, and at most the capacity of the buffers.
    """

    def __init__(self, rows: Tensor, positions: Tensor, end: int) -> None:
        self.cells, self._end = (rows, positions), end

    def attend(self, queries: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        return attend_rows(queries, buffer, *self.cells, self._end, **how)


class FixedPlan(DecodePlan):
    """The plan for N successive tokens of one lane, such as a long prompt.

    A token's sums are those of DecodePlan, whose order its position alone decides.
    """

    def attend(self, queries: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        size = max(1, _MAX_CELLS // self._end // _TOGETHER) * _TOGETHER
        parts = zip(*(torch.split(each, size) for each in (queries, *self.cells)), strict=True)
        mixed = [
            attend_rows(asked, buffer, rows, positions, self._end, **how, together=_TOGETHER)
            for asked, rows, positions in parts
        ]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


# The tokens of a feed up to this length are bags. Longer ones share the keys in a matrix product, which is
# faster, but has other bits.
_BAG_TOKENS = 16
_MAX_NUMBERS = 2**23  # in a table of bags, to bound memory

_Short = tuple[slice | Tensor, "Bags"]  # the places among the fed tokens of those that one call computes
# The tiles that each token reads: its buffer row, the first tile, and the number of tiles.
_Spans = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class TiledPlan:
    """Tokens of short feeds, which are decode steps and drafts, are bags; each longer feed has its own call.

    `feeds` have buffer rows as lanes; `rows` and `positions` are those of each fed token. `windows` are those
    of the layers.
    """

    def __init__(
        self,
        feeds: Sequence[Feed],
        rows: Sequence[int],
        positions: Sequence[int],
        cells: Cells,
        tables: BagTables,
        num_heads: int,
        windows: Iterable[int | None],
    ) -> None:
        self._num_heads, self._shape, self._tables = num_heads, cells.shape, tables
        self._cells = cells.of(zip(rows, positions, strict=True))
        self._short, self._long = _by_length(feeds, _BAG_TOKENS)
        self._rows = [rows[column] for column in self._short]
        self._ends = [positions[column] + 1 for column in self._short]
        self._parts: dict[int | None, tuple[list[_Short], list[tuple[Feed, Block]]]] = {}
        for window in windows:
            if window not in self._parts:
                self._parts[window] = self._make(window)

    def store(self, held: Tensor, buffer: Tensor) -> None:
        buffer.view(-1).scatter_(0, self._cells, held.reshape(-1))

    def attend(self, qkv: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        cap, sinks = how["cap"], how.get("sinks")
        short, long = self._parts[how["window"]]
        queries = qkv[:, : self._num_heads]
        if len(short) == 1 and not long:
            return short[0][1].attend(queries, buffer, cap, sinks)
        out = qkv.new_empty(len(qkv), self._num_heads * qkv.shape[-1])
        for columns, bags in short:
            out[columns] = bags.attend(queries[columns], buffer, cap, sinks)
        for feed, block in long:
            out[block.columns] = attend_block(feed, block, qkv, buffer, self._num_heads, **how)
        return out

    def _make(self, window: int | None) -> tuple[list[_Short], list[tuple[Feed, Block]]]:
        long = _blocks(self._long, window) if self._long else []
        if not self._short:
            return [], long
        # The tables of each group of tokens hold a bounded count of numbers.
        size = max(1, _MAX_NUMBERS // (max(self._ends) * self._num_heads))
        parts: list[_Short] = []
        for start in range(0, len(self._short), size):
            group = slice(start, start + size)
            columns, rows, ends = self._short[group], self._rows[group], self._ends[group]
            bags = self._tables.bags(rows, ends, self._shape, window, slot=(window, len(parts)))
            are_adjacent = columns[-1] - columns[0] + 1 == len(columns)
            index = slice(columns[0], columns[-1] + 1) if are_adjacent else torch.tensor(columns)
            parts.append((index, bags))
        return parts, long


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
        weighed = whole.softmax(-1) if sinks is None else shares(whole, sinks[:, None])
        mixed = _sums(buffer.view(-1, width), tables.value_rows, tables.value_starts, weighed.reshape(-1))
        return mixed.view(count, -1)


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
        slot: Hashable,
    ) -> Bags:
        """Return the bags of tokens in buffer `rows`, each of which sees the keys before its end.

        `shape` is that of the buffers. With a window only its last keys are seen. `slot` is what the tables
        are kept under: calls with the same one are expected to be alike.
        """
        firsts = [max(0, end - window) for end in ends] if window else [0] * len(ends)
        bases = tuple([first // TILE for first in firsts])
        counts = tuple([(end - 1) // TILE + 1 - base for end, base in zip(ends, bases, strict=True)])
        key = (tuple(rows), bases, counts), shape
        if slot not in self._kept or self._kept[slot][0] != key:
            self._kept[slot] = key, self._make(key[0], shape)
        tables = self._kept[slot][1]
        bounds = torch.tensor([ends, firsts], dtype=torch.int32)[..., None, None, None, None]
        is_seen = tables.places < bounds[0]
        if window:
            is_seen &= tables.places >= bounds[1]
        heads = shape[1] // 2
        return Bags((heads, self._num_heads // heads), tables, torch.where(is_seen, 0.0, -torch.inf))

    def clear(self) -> None:
        self._kept.clear()

    def _make(self, spans: _Spans, shape: Sequence[int]) -> _Tables:
        _, double, capacity, width = shape
        heads = double // 2
        group = self._num_heads // heads
        row, base, count = torch.tensor(spans, dtype=torch.int32)[..., None]
        tiles = max(spans[2])
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
        size = len(row) * self._num_heads * tiles
        return _Tables(
            tiles,
            key_rows[:, :, :, None].expand(-1, -1, -1, group, -1).flatten(),
            torch.arange(0, size * width, width, dtype=torch.int32),
            value_rows[:, :, None].expand(-1, -1, group, -1).flatten(),
            torch.arange(0, size * TILE, tiles * TILE, dtype=torch.int32),
            torch.full((tiles, 1, 1), self._scale),
            places[:, None, None],
        )


class CompiledPlan(FusedPlan):
    """Tokens of short feeds (decode steps and drafts) are computed by attention_llvm.py; each longer feed has
    its own call, as in TiledPlan. `feeds` have buffer rows as lanes.
    """

    def __init__(self, feeds: Sequence[Feed], cells: tuple[Tensor, Tensor]) -> None:
        self.cells = cells
        short, self._long = _by_length(feeds, _BAG_TOKENS)
        self._short = torch.tensor(short, dtype=torch.int64)
        self._most_keys = max(feed.end for feed in feeds)
        self._blocks: dict[int | None, list[tuple[Feed, Block]]] = {}

    def attend_fed(
        self,
        qkv: Tensor,
        buffer: Tensor,
        rope: tuple[Tensor, Tensor] | None,
        norms: tuple[Norm, Norm] | None,
        *,
        is_whole: bool,
        **how: Unpack[Scoring],
    ) -> Tensor:
        window, scale = how["window"], how["scale"]
        mixed = attention_llvm.attend(
            qkv, buffer, self.cells, self._short, self._most_keys, rope, norms, window=window, scale=scale
        )
        if not self._long:
            return mixed
        num_heads = qkv.shape[1] - buffer.shape[1]
        out = torch.empty(len(qkv), num_heads * qkv.shape[-1])
        out[self._short] = mixed
        if window not in self._blocks:
            self._blocks[window] = _blocks(self._long, window)
        for feed, block in self._blocks[window]:
            out[block.columns] = attend_block(feed, block, qkv, buffer, num_heads, **how)
        return out


def attend_block(
    feed: Feed, block: Block, qkv: Tensor, buffer: Tensor, num_heads: int, **how: Unpack[Scoring]
) -> Tensor:
    """Return the attention of a long feed over keys in tiles, whose own keys and values are there already."""
    if feed.start == 0 and block.first == 0:  # the keys and values of a lane's first tokens are fed
        keys, values = qkv[block.columns, num_heads:].transpose(0, 1)[None].chunk(2, 1)
    else:
        keys = dense_keys(buffer, feed.lane, block.first, block.end)
        values = buffer[block.rows, buffer.shape[1] // 2 :, block.first : block.end]
    return block.attend(qkv[block.columns, :num_heads], keys, values, **how)


class Cells:
    """Where keys and values [2 * Hkv, D] of a token lie in a flat buffer of `shape` [rows, 2 * Hkv, C, D]."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = shape
        _, double, capacity, width = shape
        heads = torch.arange(double)[:, None] * (capacity * width)
        dims = torch.arange(width)
        both = heads[: double // 2] + dims * TILE, heads[double // 2 :] + dims
        self._numbers = torch.stack([numbers.flatten() for numbers in both])

    def of(self, held: Iterable[tuple[int, int]]) -> Tensor:
        """Return the places of the numbers of tokens, given by (row, position): [N * 2 * Hkv * D]."""
        _, double, capacity, width = self.shape
        size = double * capacity * width
        starts = [
            (row * size + position // TILE * width * TILE + position % TILE, row * size + position * width)
            for row, position in held
        ]
        cells: Tensor = torch.tensor(starts)[:, :, None] + self._numbers
        return cells.flatten()


def dense_keys(buffer: Tensor, row: int, first: int, end: int) -> Tensor:
    """Return the keys of the tokens from `first` to `end` of a row as [1, Hkv, end - first, D]."""
    _, double, capacity, width = buffer.shape
    tiles = buffer[row, : double // 2].view(-1, capacity // TILE, width, TILE)
    base = first // TILE
    held = tiles[None, :, base : -(-end // TILE)].transpose(-1, -2).flatten(2, 3)
    return held[:, :, first - base * TILE : end - base * TILE]


def move_tokens(row: Tensor, sources: Tensor, targets: Tensor, *, is_tiled: bool) -> None:
    """Copy tokens at places `sources` [N] of a buffer's row [2 * Hkv, C, D] to the places `targets` [N].

    With `is_tiled` keys are in tiles, as Cells has them.
    """
    if is_tiled:
        heads, capacity, width = len(row) // 2, row.shape[1], row.shape[2]
        keys, row = row[:heads].view(heads, capacity // TILE, width, TILE), row[heads:]
        held = keys[:, sources // TILE, :, sources % TILE]
        keys[:, targets // TILE, :, targets % TILE] = held
    row[:, targets] = row[:, sources]


def _sums(table: Tensor, rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    sums: Tensor = torch.ops.aten._embedding_bag_forward_only(
        table, rows, starts, False, 0, False, weights, False, -1
    )[0]
    return sums
