"""Buffers of keys and values: one row of a buffer per KV lane, grown on demand."""

from __future__ import annotations

import heapq
import math
import mmap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gencli.core.step import Feed
from gencli.models.kv.lengths import STEP, LaneLengths

if TYPE_CHECKING:
    from gencli.models.kv.padded import ForwardBatch

__all__ = ["LaneBuffer", "LaneRows", "LaneStore"]


_LEAST_MAPPED = 2**20  # bytes


def _zeros(shape: tuple[int, int, int, int], like: Tensor) -> Tensor:
    """Return zeros [rows, heads, capacity, D], with the dtype and device of `like`.

    On CUDA a token's heads are adjacent in memory, as kernels for packed texts read them. On a CPU the zeros
    lie in a mapping of their own, which goes back to the system when a larger buffer replaces them. The
    allocator would keep it: the holes of growing buffers took a tenth of the memory of a run.
    """
    if like.is_cuda:
        rows, heads, capacity, width = shape
        return like.new_zeros(rows, capacity, heads, width).transpose(1, 2)
    count = math.prod(shape)
    if like.device.type != "cpu" or count * like.dtype.itemsize < _LEAST_MAPPED:
        return like.new_zeros(shape)
    return torch.frombuffer(mmap.mmap(-1, count * like.dtype.itemsize), dtype=like.dtype).view(shape)


class LaneBuffer:
    """Keys or values of one layer, [rows, heads, capacity, head_dim], grown on demand.

    The attention mask hides entries beyond a lane's length. They must be finite, because 0 * inf is NaN.
    Whoever writes may order the numbers of each `tile` tokens as they like: tokens are copied and zeroed in
    whole tiles.
    """

    def __init__(self, rows: LaneRows, *, tile: int = 1) -> None:
        self._rows, self._tile = rows, tile
        self._data = torch.empty(0, 0, 0, 0)

    def reserve(self, num_rows: int, length: int, *, like: Tensor) -> Tensor:
        """Return the buffer after growing it to hold `length` tokens in `num_rows` rows.

        A new buffer has the heads, the head_dim, the dtype and the device of `like` [B, H, Q, D].
        """
        if not self.holds(num_rows, length):
            self._grow(num_rows, length, like)
        return self._data

    def regrow(self, num_rows: int, length: int) -> None:
        """Grow a buffer that was written to, as `reserve`; no-op before."""
        if self._data.nbytes:
            self.reserve(num_rows, length, like=self._data)

    @property
    def data(self) -> Tensor:
        """The buffer as it is now; empty before the first write."""
        return self._data

    def holds(self, num_rows: int, length: int) -> bool:
        """Return whether it holds `length` tokens in `num_rows` rows without growing."""
        return self._data.shape[0] >= num_rows and self._data.shape[2] >= length

    def write(self, batch: ForwardBatch, states: Tensor) -> Tensor:
        """Store `states` [B, H, Q, D] of the batch; return the contents of its lanes, [B, H, K, D]."""
        data = self.reserve(*batch.room, like=states)
        if batch.target is None:  # adjacent lanes of equal length: one slice
            held = data[batch.lanes, :, : batch.kv_length]
            held[:, :, batch.start :] = states
            return held
        fed = states.transpose(1, 2)  # [B, Q, H, D]
        data.transpose(1, 2)[batch.target] = fed.flatten(0, 1) if batch.source is None else fed[batch.source]
        return data[batch.lanes, :, : batch.kv_length]

    def fork(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of one row to another."""
        data = self._grow(target + 1, length, self._data) if target >= self._data.shape[0] else self._data
        tokens = self._whole(length)
        data[target, :, :tokens] = data[source, :, :tokens]

    def wipe(self, row: int, length: int) -> None:
        """Zero the first `length` tokens of the row, so that no data reaches the next request."""
        if row < self._data.shape[0]:
            self._data[row, :, : self._whole(length)] = 0

    @property
    def nbytes(self) -> int:
        """The bytes of the buffer."""
        return self._data.nbytes

    def free_cache(self) -> None:
        """Free the buffer; all of its lanes must be empty."""
        self._data = torch.empty(0, 0, 0, 0)

    def _grow(self, num_rows: int, length: int, like: Tensor) -> Tensor:
        """Grow to `num_rows` rows of `length` tokens, and copy the tokens held.

        The number of rows doubles at least; the capacity is a multiple of STEP tokens, in whole
        tiles.
        """
        old_rows, _, capacity, _ = self._data.shape
        if num_rows > old_rows:
            num_rows = min(max(num_rows, 2 * old_rows), len(self._rows))
        capacity = max(self._whole(-(-length // STEP) * STEP), capacity)
        data = _zeros((max(num_rows, old_rows), like.shape[1], capacity, like.shape[3]), like)
        for row, held in self._rows.held():
            tokens = self._whole(held)
            data[row, :, :tokens] = self._data[row, :, :tokens]
        self._data = data
        return data

    def _whole(self, length: int) -> int:
        """Return the tokens in the tiles that hold `length` tokens."""
        return -(-length // self._tile) * self._tile


class LaneStore:
    """The rows of all lanes, and the buffers that hold them. There are `spare` rows more than lanes."""

    def __init__(self, lengths: LaneLengths, *, spare: int = 0) -> None:
        self.rows = LaneRows(lengths, spare=spare)
        self.buffers: Sequence[LaneBuffer] = ()
        self._lengths = lengths
        self._written = [0] * len(
            self.rows
        )  # maximum number of tokens written to each row since it was wiped

    def seat(self, feeds: tuple[Feed, ...]) -> tuple[Feed, ...]:
        """Return the feeds with each lane replaced by its buffer row.

        Record how many tokens each row may hold, rejected drafts and failed passes included.
        """
        seated = tuple(feed._replace(lane=self.rows.take(feed.lane)) for feed in feeds)
        for feed in seated:
            self._written[feed.lane] = max(self._written[feed.lane], feed.start + len(feed.tokens))
        return seated

    def holds(self, num_rows: int, length: int) -> bool:
        """Return whether the buffers hold `length` tokens in `num_rows` rows without growing."""
        return all(buffer.holds(num_rows, length) for buffer in self.buffers)

    def reserve(self, num_rows: int, length: int) -> None:
        """Grow the buffers that were written to, as LaneBuffer.reserve."""
        for buffer in self.buffers:
            buffer.regrow(num_rows, length)

    def fork(self, source: int, target: int) -> None:
        """Copy one lane to another; no-op for an empty source."""
        if length := self._lengths[source]:
            start, end = self.rows.take(source), self.rows.take(target)
            self._written[end] = length
            for buffer in self.buffers:
                buffer.fork(start, end, length)

    def wipe(self, lane: int) -> None:
        """Zero everything written to the lane, and free its row."""
        row = self.rows.find(lane)
        if row is None:
            return
        for buffer in self.buffers:
            buffer.wipe(row, self._written[row])
        self._written[row] = 0
        self.rows.free(lane)

    def free_cache(self) -> None:
        """Free all buffers; every lane must be empty."""
        for buffer in self.buffers:
            buffer.free_cache()


class LaneRows:
    """Assign a lane the lowest free row at its first write, and free the row when the lane is emptied.

    A guided sequence and its unconditional sequence, whose lanes are `max_batch` apart, so get adjacent rows.
    There are `spare` rows more than lanes.
    """

    def __init__(self, lengths: LaneLengths, *, spare: int = 0) -> None:
        self._lengths = lengths
        self._rows: dict[int, int] = {}  # by lane
        self._free = list(range(len(lengths)))
        self._most = spare + len(lengths)

    def __len__(self) -> int:
        """Return the maximum number of rows."""
        return self._most

    @property
    def spare(self) -> int:
        """The lowest row that no lane has; of a row more than lanes there is one always."""
        return self._free[0] if self._free else len(self._lengths)

    def find(self, lane: int) -> int | None:
        """Return the row of the lane; None without one."""
        return self._rows.get(lane)

    def take(self, lane: int) -> int:
        """Return the row of the lane, after assigning one if needed."""
        if lane not in self._rows:
            self._rows[lane] = heapq.heappop(self._free)
        return self._rows[lane]

    def free(self, lane: int) -> None:
        """Free the row of the lane, which must have one."""
        heapq.heappush(self._free, self._rows.pop(lane))

    def held(self) -> list[tuple[int, int]]:
        """Return (row, tokens) of every lane that is not empty and has a row."""
        return [(self._rows[lane], length) for lane, length in self._lengths.held() if lane in self._rows]
