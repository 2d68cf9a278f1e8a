"""Conversion of values to declared types: strict, bounded, with messages that show what was given."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from processors.errors import ParamError, shown_value
from processors.secret import Secret

__all__ = ["Bounds", "convert", "shown_number", "whole"]

_WIDEST = 2**62  # integers are smaller, to fit the int64 columns of a stage
_DIGITS = 40  # digits up to which an integer is read and shown in full


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a number: ge <= value <= le, gt < value < lt."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def allow(self, value: float) -> bool:
        """Whether the value is within the bounds."""
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def __str__(self) -> str:
        signs = ((self.ge, ">="), (self.gt, ">"), (self.le, "<="), (self.lt, "<"))
        return " and ".join(f"{sign} {shown_number(limit)}" for limit, sign in signs if limit is not None)


_ANY = Bounds()


def shown_number(value: float) -> str:
    """Return a number as messages show it; an integer with too many digits is described instead."""
    if isinstance(value, int):
        return str(value) if abs(value) < 10**_DIGITS else f"a number of more than {_DIGITS} digits"
    return f"{value:g}"


def whole(text: str) -> int | None:
    """Return the integer >= 0 that the text spells; None if it spells none or has too many digits."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


class _Mismatch(Exception):
    """A value does not fit: what was expected, and the path of the wrong item."""

    def __init__(self, expected: str, path: tuple[int, ...] = ()) -> None:
        super().__init__(expected)
        self.expected = expected
        self.path = path


def convert(value: Any, hint: Any, bounds: Bounds = _ANY, *, finite: bool = True) -> Any:
    """Convert a value to the type hint and check the bounds.

    ParamError: `is "x", but has to be a number.`, or, for an item of a list with its path, `has "x" in it,
    where there has to be a number.`
    """
    if Secret in get_args(hint):  # before anything could show the value
        return value if value is None or isinstance(value, Secret) else Secret(value)
    try:
        converted = _convert(value, hint)
        _check_numbers(converted, bounds, finite)
    except _Mismatch as mismatch:
        given = _shown(_item(value, mismatch.path))
        prefix = f"has {given} in it, where there has" if mismatch.path else f"is {given}, but has"
        raise ParamError(f"{prefix} to be {mismatch.expected}.", mismatch.path) from None
    return converted


def _item(value: Any, path: tuple[int, ...]) -> Any:
    for index in path:
        value = (list(value.items()) if isinstance(value, Mapping) else value)[index]
    return value


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return shown_number(value)
    return shown_value(value)


def _each(values: Iterable[Any], call: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield the call's results; a _Mismatch gets the index of its item."""
    for index, value in enumerate(values):
        try:
            yield call(value)
        except _Mismatch as mismatch:
            raise _Mismatch(mismatch.expected, (index, *mismatch.path)) from None


def _check_numbers(value: Any, bounds: Bounds, finite: bool) -> None:
    if isinstance(value, tuple):
        for _ in _each(value, lambda item: _check_numbers(item, bounds, finite)):
            pass
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and (math.isnan(value) or value == math.inf):
            raise _Mismatch("a finite number")
        if isinstance(value, float) and value == -math.inf and finite:
            raise _Mismatch("a finite number")
        if not bounds.allow(value):
            raise _Mismatch(f"a number {bounds}")
        if isinstance(value, int) and bounds.le is None and not -_WIDEST < value < _WIDEST:
            raise _Mismatch("a number of 18 digits at the most")


def _convert(value: Any, hint: Any) -> Any:
    """Convert a value to the type hint; _Mismatch if it does not fit."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(value, get_args(hint))
    if origin is Literal:
        if value in get_args(hint) and isinstance(value, str):
            return value
        raise _Mismatch("one of " + ", ".join(get_args(hint)))
    if origin is tuple:
        return _convert_tuple(value, get_args(hint))
    if hint is type(None):
        if value is None:
            return None
        raise _Mismatch("null")
    return _convert_scalar(value, hint)


def _convert_scalar(value: Any, hint: type) -> Any:
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, str):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and is_number and (isinstance(value, float) or abs(value) < 2**1023):
        return float(value)
    if hint is int and is_number and (isinstance(value, int) or value.is_integer()):
        return int(value)
    names = {bool: "true or false", str: "a text", float: "a number", int: "a whole number"}
    raise _Mismatch(names[hint])


def _convert_union(value: Any, hints: tuple[Any, ...]) -> Any:
    found = []
    for hint in hints:
        try:
            return _convert(value, hint)
        except _Mismatch as mismatch:
            found.append(mismatch)
    deepest = max(found, key=lambda mismatch: len(mismatch.path))
    raise deepest if deepest.path else _Mismatch(" or ".join(mismatch.expected for mismatch in found))


def _convert_tuple(value: Any, hints: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, Mapping):  # {42: 1.5, " word": -2} becomes pairs; a key of digits is an id
        value = [
            (key if (number := whole(str(key))) is None else number, item) for key, item in value.items()
        ]
    if not isinstance(value, list | tuple):
        raise _Mismatch("a list")
    if len(hints) == 2 and hints[1] is Ellipsis:
        return tuple(_each(value, lambda item: _convert(item, hints[0])))
    if len(value) != len(hints):
        raise _Mismatch(f"a list of {len(hints)} values")
    return tuple(_each(zip(value, hints, strict=True), lambda pair: _convert(*pair)))
