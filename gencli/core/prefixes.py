"""Texts in order, so that the one which shares the longest prefix with another is found by bisection."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Match", "Prefixes", "Tokens", "is_worth_copying", "shared_length"]

_LEAST = 16  # tokens

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """The lane whose text shares the longest prefix, and the length of that; no lane shares 0 tokens."""

    lane: int = -1
    length: int = 0


class Prefixes:
    """The texts of lanes, sorted: no text shares a longer prefix with a new one than its two neighbours.

    Texts that a model reads with different rotary factors (see rope_factors) share nothing.
    """

    def __init__(self) -> None:
        self._texts: dict[int, tuple[int, Tokens]] = {}  # factors and text
        self._sorted: list[tuple[int, Tokens, int]] = []

    def __contains__(self, lane: int) -> bool:
        return lane in self._texts

    def __getitem__(self, lane: int) -> Tokens:
        return self._texts[lane][1]

    def add(self, lane: int, text: Tokens, factors: int = 0) -> None:
        """Note what a new lane holds, or will hold soon."""
        self._texts[lane] = factors, text
        insort(self._sorted, (factors, text, lane))

    def remove(self, lane: int) -> None:
        """Forget a lane; one that is not here may be forgotten as well."""
        entry = self._texts.pop(lane, None)
        if entry is not None:
            del self._sorted[bisect_left(self._sorted, (*entry, lane))]

    def clear(self) -> None:
        """Forget all lanes."""
        self._texts.clear()
        self._sorted.clear()

    def nearest(self, text: Tokens, factors: int = 0) -> Match:
        """The lane that shares most with a text."""
        place = bisect_left(self._sorted, (factors, text, -1))
        around = self._sorted[max(0, place - 1) : place + 1]
        matches = (Match(lane, shared_length(text, other)) for kind, other, lane in around if kind == factors)
        best = max(matches, key=lambda match: match.length, default=Match())
        return best if best.length else Match()


def shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts, both tuples or both lists, begin with in common.

    Slices are compared, not tokens one by one.
    """
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # a[:low] are equal, a[:high] are not
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def is_worth_copying(length: int, wanted: int) -> bool:
    """Whether so many tokens are worth a copy from lane to lane: a few are only if they are all wanted."""
    return length >= _LEAST or length == wanted
