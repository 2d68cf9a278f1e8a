"""Cache of values made from output structures, which the rows of a batch share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from gencli.structured.output_spec import OutputSpec

__all__ = ["PerSpec"]

T = TypeVar("T")
_MAX_ENTRIES = 1024


class PerSpec(Generic[T]):
    """Least-recently-used cache of `make` by structure."""

    def __init__(self, make: Callable[[OutputSpec | None], T]) -> None:
        self._make = make
        # Keyed by identity, as schemas have no hash. The entry holds the structure, so its id is not reused.
        self._made: OrderedDict[int, tuple[OutputSpec | None, T]] = OrderedDict()

    def __call__(self, structure: OutputSpec | None) -> T:
        """Return the value for the structure."""
        key = id(structure)
        if key not in self._made:
            self._made[key] = structure, self._make(structure)
        self._made.move_to_end(key)
        if len(self._made) > _MAX_ENTRIES:
            self._made.popitem(last=False)
        return self._made[key][1]
