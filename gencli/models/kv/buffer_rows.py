"""Assignment of KV lanes to rows of the KV buffers; only lanes that are not empty have a row."""

from __future__ import annotations

import heapq

from gencli.models.kv.lengths import LaneLengths

__all__ = ["LaneRows"]


class LaneRows:
    """Assign a lane the lowest free row at its first write, and free the row when the lane is emptied.

    A guided sequence and its unconditional sequence, whose lanes are `max_batch` apart, so get adjacent rows.
    """

    def __init__(self, lengths: LaneLengths) -> None:
        self._lengths = lengths
        self._rows: dict[int, int] = {}  # by lane
        self._free = list(range(len(lengths)))

    def __len__(self) -> int:
        """Return the maximum number of rows."""
        return len(self._lengths)

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
