"""Which row of the buffers a lane has: there are as many rows as lanes that hold something."""

from __future__ import annotations

import heapq

from gencli.models.kv.lengths import LaneLengths

__all__ = ["LaneRows"]


class LaneRows:
    """Gives a lane the lowest free row when it is first written, and takes it back when it is emptied.

    So a guided sample and its companion, whose lanes are `max_batch` apart, are neighbours.
    """

    def __init__(self, lengths: LaneLengths) -> None:
        self._lengths = lengths
        self._rows: dict[int, int] = {}  # by lane
        self._free = list(range(len(lengths)))

    def __len__(self) -> int:
        """The number of rows there may be."""
        return len(self._lengths)

    def find(self, lane: int) -> int | None:
        """The row of the lane, if it has one."""
        return self._rows.get(lane)

    def take(self, lane: int) -> int:
        """The row of the lane, which has one from now on."""
        if lane not in self._rows:
            self._rows[lane] = heapq.heappop(self._free)
        return self._rows[lane]

    def free(self, lane: int) -> None:
        """The lane, which has a row, is empty."""
        heapq.heappush(self._free, self._rows.pop(lane))

    def held(self) -> list[tuple[int, int]]:
        """(row, tokens) of every lane that is not empty."""
        return [(self._rows[lane], length) for lane, length in self._lengths.held() if lane in self._rows]
