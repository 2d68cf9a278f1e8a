"""What is made once for each structure, as rows of a batch share them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from gencli.config.structure import OutputSpec

__all__ = ["PerSpec"]

T = TypeVar("T")
_MOST = 1024  # that are remembered


class PerSpec(Generic[T]):
    """Calls `make` once for a structure, as long as it is one of the last that were asked for."""

    def __init__(self, make: Callable[[OutputSpec | None], T]) -> None:
        self._make = make
        # By identity: a structure holds schemas, which have no hash. What is held keeps its identity.
        self._made: OrderedDict[int, tuple[OutputSpec | None, T]] = OrderedDict()

    def __call__(self, structure: OutputSpec | None) -> T:
        """What was made for the structure."""
        key = id(structure)
        if key not in self._made:
            self._made[key] = structure, self._make(structure)
        self._made.move_to_end(key)
        if len(self._made) > _MOST:
            self._made.popitem(last=False)
        return self._made[key][1]
