"""An index of token sequences: finds the longest shared prefix by bisection over a sorted list."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Kind", "Match", "Prefixes", "Tokens", "is_worth_copying", "shared_length"]

_MIN_COPY = 16  # tokens; a shorter shared prefix is not copied

Tokens = tuple[int, ...]
Kind = tuple[int, str]  # rotary factors (see rope_factors) and salt; texts of different kinds share no prefix
_PLAIN: Kind = (0, "")


@dataclass(frozen=True, slots=True)
class Match:
    """The lane with the longest shared prefix, and the prefix's length in tokens; lane -1 for length 0."""

    lane: int = -1
    length: int = 0


class Prefixes:
    """Texts by lane, sorted. The longest shared prefix with a new text is that with a sorted neighbour."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Kind, Tokens]] = {}
        self._sorted: list[tuple[Kind, Tokens, int]] = []

    def __contains__(self, lane: int) -> bool:
        return lane in self._texts

    def __getitem__(self, lane: int) -> Tokens:
        return self._texts[lane][1]

    def add(self, lane: int, text: Tokens, kind: Kind = _PLAIN) -> None:
        """Add a lane with the text that it holds or is about to hold."""
        self._texts[lane] = kind, text
        insort(self._sorted, (kind, text, lane))

    def remove(self, lane: int) -> None:
        """Remove a lane; no error if it is absent."""
        entry = self._texts.pop(lane, None)
        if entry is not None:
            del self._sorted[bisect_left(self._sorted, (*entry, lane))]

    def clear(self) -> None:
        """Remove all lanes."""
        self._texts.clear()
        self._sorted.clear()

    def nearest(self, text: Tokens, kind: Kind = _PLAIN) -> Match:
        """Return the lane that shares the longest prefix with a text."""
        place = bisect_left(self._sorted, (kind, text, -1))
        around = self._sorted[max(0, place - 1) : place + 1]
        matches = (Match(lane, shared_length(text, other)) for own, other, lane in around if own == kind)
        best = max(matches, key=lambda match: match.length, default=Match())
        return best if best.length else Match()


def shared_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of two texts, both tuples or both lists.

    Bisects over slice comparisons, which are faster in Python than a loop over tokens.
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
    """Whether a shared prefix of `length` is worth a copy between lanes: 16 tokens, or all wanted ones."""
    return length >= _MIN_COPY or length == wanted
