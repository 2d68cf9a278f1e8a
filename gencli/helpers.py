"""Helpers of all rooms: what messages are made of (times, sizes, counts), notices once, recent values, and
whether other processes compete for the cores.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar


def clock(seconds: float) -> str:
    """Return seconds as minutes and seconds, or with hours: 2:03, 1:02:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{second:02}" if hours else f"{minutes}:{second:02}"


def size(count: int | None) -> str:
    """Return a number of bytes in a binary unit, such as "1.5 GiB"; "?" for None."""
    if count is None:
        return "?"
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


def shortened(text: str, length: int) -> str:
    """Return the text, or if it is longer than `length`, its start and "..." in this length."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def ended(text: str) -> str:
    """Return the text with a full stop, unless it has an end mark."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def counted(count: int, noun: str, several: str = "") -> str:
    """Return a number with its noun, which is `several`, by default the noun with an s, unless it is 1."""
    return f"{count:,} {noun if count == 1 else several or f'{noun}s'}"


def once(
    report: Callable[[str], None], reported: Iterable[str] = (), *, limit: float = math.inf
) -> Callable[[str], None]:
    """Return a function that reports each text once, at most `limit` texts; `reported` ones never."""
    seen = set(reported)

    def report_new(text: str) -> None:
        if text not in seen and len(seen) < limit:
            seen.add(text)
            report(text)

    return report_new


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps the `size` most recently used values whose keys weigh at most `max_weight` in total, by `weigh`.

    Thread-safe. A value is made outside of the lock, because making it may take long. If two threads make a
    value for one key, the first value is kept and both threads get it.
    """

    def __init__(
        self, size: int, *, max_weight: float = math.inf, weigh: Callable[[K], float] = lambda key: 0
    ) -> None:
        self._size, self._max_weight, self._weigh, self._lock = size, max_weight, weigh, Lock()
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
            while len(self._values) > self._size or sum(map(self._weigh, self._values)) > self._max_weight:
                self._values.popitem(last=False)
        return value


_PRESSURE = Path("/proc/pressure/cpu")
_MAX_STALLED = 10.0  # percent of the last ten seconds in which some task waited for a core


def is_shared(pressure: Path = _PRESSURE) -> bool:
    """Return whether other processes compete for the cores of this machine.

    On Linux decided by how long tasks waited for a core (pressure stall information), elsewhere by the load
    of the last minute.
    """
    with suppress(OSError, ValueError, IndexError):
        some = pressure.read_text(encoding="ascii").split()
        return float(some[1].removeprefix("avg10=")) > _MAX_STALLED
    try:
        return os.getloadavg()[0] > (os.cpu_count() or 1)
    except (OSError, AttributeError):  # Windows has no load
        return False
