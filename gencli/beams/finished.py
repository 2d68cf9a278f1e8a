"""The best finished texts of a search."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["FinishedList"]

T = TypeVar("T")


class FinishedList(Generic[T]):
    """Keeps the `size` items of the highest scores, the best first; of equal ones those that came first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: list[tuple[float, T]] = []

    def add(self, score: float, item: T) -> None:
        """Take the item in, if it is among the best."""
        self._entries.append((score, item))
        self._entries.sort(key=lambda entry: -entry[0])  # stable
        del self._entries[self._size :]

    @property
    def is_full(self) -> bool:
        """Whether an item has to beat another one to come in."""
        return len(self._entries) == self._size

    @property
    def worst(self) -> float:
        """The score that has to be beaten; minus infinity while there is room."""
        return self._entries[-1][0] if self.is_full else float("-inf")

    @property
    def entries(self) -> tuple[tuple[float, T], ...]:
        """Scores and items, the best first."""
        return tuple(self._entries)
