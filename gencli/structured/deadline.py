"""The time limit of all work on a schema before a run: reading, checking, rewriting, compiling."""

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
    """A point in time of `time.monotonic`; `seconds`: the whole limit, for errors."""

    seconds: float
    end: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline `seconds` from now."""
        return cls(seconds, time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Remaining seconds, at least 0."""
        return max(0.0, self.end - time.monotonic())

    def check(self) -> None:
        """Raise OutOfTime if the deadline has passed."""
        if time.monotonic() > self.end:
            raise OutOfTime(
                f"The schema was not checked within the time limit of {self.seconds:g} s.",
                hint="Make it smaller, or give it more time with `grammar_timeout`.",
            )

    def watch(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items; check the deadline before each."""
        for item in items:
            self.check()
            yield item


NEVER = Deadline(math.inf, math.inf)
