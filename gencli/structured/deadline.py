"""The time that everything before a run has together: reading and checking a schema, rewriting, compiling."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from gencli.structured.errors import OutOfTime

__all__ = ["NEVER", "Deadline"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of `time.monotonic`; `seconds` is the whole limit, which errors name."""

    seconds: float
    end: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now."""
        return cls(seconds, time.monotonic() + seconds)

    def part(self, share: float) -> Deadline:
        """The end of this share of the time that is left."""
        return Deadline(self.seconds, time.monotonic() + share * self.left)

    @property
    def left(self) -> float:
        """Seconds from now."""
        return max(0.0, self.end - time.monotonic())

    def check(self) -> None:
        """Raise OutOfTime when it is over."""
        if time.monotonic() > self.end:
            raise OutOfTime(self.seconds)

    def watch(self, items: Iterable[T]) -> Iterator[T]:
        """The items, with a look at the clock before each."""
        for item in items:
            self.check()
            yield item


NEVER = Deadline(math.inf, math.inf)
