"""A cache of the most recently used values."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Recent"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps the `size` most recently used values whose keys weigh at most `most` in total, by `weigh`.

    Thread-safe. A value is made outside of the lock, because making it may take long. If two threads make a
    value for one key, the first value is kept and both threads get it.
    """

    def __init__(
        self, size: int, *, most: float = math.inf, weigh: Callable[[K], float] = lambda key: 0
    ) -> None:
        self._size, self._most, self._weigh, self._lock = size, most, weigh, Lock()
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of the key, made by `make` if it is not cached. Raises the errors of `make`."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            value = self._values.setdefault(key, value)
            self._values.move_to_end(key)
            while len(self._values) > self._size or sum(map(self._weigh, self._values)) > self._most:
                self._values.popitem(last=False)
        return value
