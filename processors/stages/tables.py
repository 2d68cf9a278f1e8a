"""`TableStage`: base of stages with immutable tables built from their parameters and shared by slots."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from processors.base import Admission, Env, Processor
from processors.params import Params
from processors.rows import Rows

__all__ = ["TableStage"]

P = TypeVar("P", bound=Params)
T = TypeVar("T")


class TableStage(Processor[P], Generic[P, T]):
    """A stage with immutable tables, which slots with equal parameters share."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._of: dict[int, T] = {}
        self._known: Callable[[P], T] = functools.lru_cache(maxsize=16)(self.tables)

    @abstractmethod
    def tables(self, params: P) -> T:
        """Build the tables for these parameters. Raises ProcessorsError for invalid ones."""

    def admit(self, slot: int, params: P, request: Admission) -> None:
        """Build the tables, or reuse those of an earlier request."""
        super().admit(slot, params, request)
        self._of[slot] = self._known(params)

    def release(self, slot: int) -> None:
        """Drop the reference to the tables."""
        self._of.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        """Share the tables."""
        super().fork(source, target)
        self._of[target] = self._of[source]

    def places(self, rows: Rows) -> dict[T, list[int]]:
        """Return the distinct tables of the rows, each with the indices of its rows."""
        found: dict[T, list[int]] = {}
        for place, slot in enumerate(rows.host_slots):
            found.setdefault(self._of[slot], []).append(place)
        return found
