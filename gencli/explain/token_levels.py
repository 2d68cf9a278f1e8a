"""Levels of a token's probability, rank and entropy, which colour it; and the type of its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Record = Mapping[str, Any]
Scale = Literal["probability", "rank", "entropy", "decided"]

# The level of a value is the number of bounds that it exceeds.
_BOUNDS: dict[str, tuple[float, float, float]] = {
    "probability": (0.5, 0.1, 0.02),
    "rank": (1, 5, 20),
    "entropy": (0.5, 1.5, 3),
    "decided": (0, 1, 2),
}
LEGENDS: dict[str, tuple[str, str, str, str]] = {
    "probability": ("p > .5", ".1 to .5", ".02 to .1", "below .02"),
    "rank": ("first", "2 to 5", "6 to 20", "beyond"),
    "entropy": ("below .5 nats", ".5 to 1.5", "1.5 to 3", "3 and more"),
    "decided": ("by no stage", "one stage", "two", "more"),
}


def level(scale: Scale, value: float | None) -> int:
    """Return the level of a value; the last one for None."""
    if scale == "probability":
        return sum((value or 0.0) < bound for bound in _BOUNDS[scale])
    if value is None:
        return len(_BOUNDS[scale])
    return sum(value >= bound if scale == "entropy" else value > bound for bound in _BOUNDS[scale])
