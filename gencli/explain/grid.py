"""The grid of a sweep: which options vary, and their values in each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import product
from math import prod

from gencli.config.options.run import OPTIONS
from gencli.config.peers import meant_option
from gencli.errors import UsageError

__all__ = ["MOST_CELLS", "VARIED", "Axis", "cells", "read_axis"]

MOST_CELLS = 1000
_LARGEST = Decimal(10) ** 15  # limit of a range's bounds
_SECTIONS = ("Chain", "Guidance", "Draw", "Limits and stops")
# Options that a sweep may vary: numbers and names in the sections that affect a text.
VARIED = {entry.key: entry for entry in OPTIONS if entry.section in _SECTIONS and not entry.many and (
    entry.type in (int, float) or entry.choices)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """An option by key, and its values as texts, in order."""

    key: str
    values: tuple[str, ...]


def read_axis(text: str) -> Axis:
    """Return the axis of `key=a,b,c` or `key=from:to:step`, both ends included, steps exact in decimals.

    Raises UsageError for an unknown option, an invalid value, or a duplicate.
    """
    name, sign, given = text.partition("=")
    key = name.strip().lstrip("-").replace("-", "_")
    if not sign or not given.strip():
        hint = "Write temperature=0.2:1.4:0.2 or min_p=0,0.1."
        raise UsageError(f"{text[:60]!r} varies nothing.", hint=hint)
    if key not in VARIED:
        near = meant_option(key, {name: name for name in VARIED})
        raise UsageError(f"A sweep cannot vary {key[:60]!r}. {near}".strip())
    values = _range(given) if given.count(":") == 2 else [one.strip() for one in given.split(",")]
    for value in values:
        VARIED[key].value(value, f"{key}={value[:40]}")
    if len(set(values)) < len(values):
        raise UsageError(f"{text[:60]!r} has a value twice.", hint="Leave one of them out.")
    return Axis(key, tuple(values))


def _range(text: str) -> list[str]:
    try:
        first, last, step = (Decimal(part.strip()) for part in text.split(":"))
    except InvalidOperation:
        raise UsageError(f"{text[:60]!r} is no range of numbers.", hint="Write from:to:step.") from None
    numbers = first, last, step
    if len(text) > 90 or not all(one.is_finite() and one.copy_abs() < _LARGEST for one in numbers):
        raise UsageError(f"{text[:60]!r} has a number that is too large or too long.")
    if not step or (last - first) / step < 0:
        raise UsageError(f"The step {step} does not lead from {first} to {last}.")
    count = int((last - first) / step) + 1
    if count > MOST_CELLS:
        raise UsageError(f"{text[:60]!r} has {count} values, at most {MOST_CELLS} are tried.")
    return [_plain(first + number * step) for number in range(count)]


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def cells(axes: Sequence[Axis]) -> list[Mapping[str, str]]:
    """Return the values of each cell, the last axis changing fastest.

    Raises UsageError if there are too many.
    """
    keys = [axis.key for axis in axes]
    if len(set(keys)) < len(keys):
        raise UsageError("An option is varied twice.", hint="Put its values into one list.")
    if (count := prod(len(axis.values) for axis in axes)) > MOST_CELLS:
        raise UsageError(f"The grid has {count} cells, at most {MOST_CELLS} are tried.", hint="Vary less.")
    found = product(*(axis.values for axis in axes))
    return [dict(zip(keys, values, strict=True)) for values in found]
