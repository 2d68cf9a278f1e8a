"""Declared parameters: frozen, bounded, strict; one declaration serves code, help, YAML and docs."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from processors.errors import ParamError, nearest

__all__ = ["Bounds", "Params", "convert", "describe", "param"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a number: ge <= value <= le, gt < value < lt."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def allow(self, value: float) -> bool:
        """Whether the value lies inside."""
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def __str__(self) -> str:
        signs = ((self.ge, ">="), (self.gt, ">"), (self.le, "<="), (self.lt, "<"))
        return " and ".join(f"{sign} {limit:g}" for limit, sign in signs if limit is not None)


_ANY = Bounds()


def param(
    default: Any,
    doc: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    hint: str = "",
    finite: bool = True,
) -> Any:
    """Declare a field of a Params class.

    `doc` is one sentence: the help text, the YAML comment and the docs row. `hint` is appended to the
    error when the value is refused. `finite=False` also admits -inf (a ban written as a bias).
    """
    bounds = Bounds(ge, gt, le, lt)
    return dataclasses.field(
        default=default, metadata={"doc": doc, "bounds": bounds, "hint": hint, "finite": finite}
    )


@dataclass(frozen=True, slots=True)
class Params:
    """Base of every stage's parameters. Default values mean "off"; the first field is the main one."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = _converted(type(self), field, getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    def is_off(self) -> bool:
        """Whether the stage has nothing to do with these values."""
        main = self.main()
        return bool(getattr(self, main) == type(self).default(main))

    @classmethod
    def main(cls) -> str:
        """Name of the field that `stage=value` sets."""
        return dataclasses.fields(cls)[0].name

    @classmethod
    def default(cls, name: str) -> Any:
        """Default value of a field."""
        return next(field.default for field in dataclasses.fields(cls) if field.name == name)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, stage: str = "") -> Self:
        """Build from parsed YAML or JSON; an unknown key is an error that names the nearest one."""
        known = {field.name for field in dataclasses.fields(cls)}
        for key in mapping:
            if key not in known:
                raise ParamError(f"Stage {stage!r} has no parameter {key!r}. {nearest(str(key), known)}")
        try:
            return cls(**mapping)
        except ParamError as error:
            raise ParamError(f"{stage}: {error}" if stage else str(error)) from None

    def to_mapping(self) -> dict[str, Any]:
        """The values that differ from the defaults, as plain lists, numbers and strings."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: _plain(value) for name, value in values.items() if value != self.default(name)}

    def replace(self, **changes: Any) -> Self:
        """A copy with some values changed."""
        return dataclasses.replace(self, **changes)


def describe(params: type[Params]) -> dict[str, dict[str, Any]]:
    """Per field: doc, type hint, default and bounds; what help, YAML comments and docs are made of."""
    hints = _hints(params)
    return {
        field.name: {
            "doc": field.metadata["doc"],
            "type": hints[field.name],
            "default": field.default,
            "bounds": field.metadata["bounds"],
        }
        for field in dataclasses.fields(params)
    }


_hints: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _converted(owner: type[Params], field: dataclasses.Field[Any], value: Any) -> Any:
    hint = _hints(owner)[field.name]
    bounds, finite = field.metadata["bounds"], field.metadata["finite"]
    try:
        return convert(value, hint, bounds, finite=finite)
    except ParamError as error:
        tail = f" {field.metadata['hint']}" if field.metadata["hint"] else ""
        raise ParamError(f"{field.name} {error}{tail}") from None


def convert(value: Any, hint: Any, bounds: Bounds = _ANY, *, finite: bool = True) -> Any:
    """The value as the type hint and the bounds want it; ParamError: `is "x", but has to be a number.`"""
    try:
        converted = _convert(value, hint)
        _check_numbers(converted, bounds, finite)
    except (TypeError, ValueError) as error:
        raise ParamError(f"is {_shown(value)}, but has to be {error}.") from None
    return converted


def _shown(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)


def _check_numbers(value: Any, bounds: Bounds, finite: bool) -> None:
    if isinstance(value, tuple):
        for item in value:
            _check_numbers(item, bounds, finite)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and (math.isnan(value) or value == math.inf):
            raise ValueError("a finite number")
        if isinstance(value, float) and value == -math.inf and finite:
            raise ValueError("a finite number")
        if not bounds.allow(value):
            raise ValueError(f"a number {bounds}")


def _convert(value: Any, hint: Any) -> Any:
    """The value as the type hint wants it, or TypeError/ValueError with what was expected."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(value, get_args(hint))
    if origin is Literal:
        if value in get_args(hint) and isinstance(value, str):
            return value
        raise ValueError("one of " + ", ".join(get_args(hint)))
    if origin is tuple:
        return _convert_tuple(value, get_args(hint))
    if hint is type(None):
        if value is None:
            return None
        raise TypeError("null")
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
    raise TypeError(names[hint])


def _convert_union(value: Any, hints: tuple[Any, ...]) -> Any:
    wanted = []
    for hint in hints:
        try:
            return _convert(value, hint)
        except (TypeError, ValueError, OverflowError) as error:
            wanted.append(str(error))
    raise TypeError(" or ".join(wanted))


def _convert_tuple(value: Any, hints: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, Mapping):  # {42: 1.5, " word": -2}: pairs; a key of digits is an id
        value = [(int(key) if str(key).isdecimal() else key, item) for key, item in value.items()]
    if not isinstance(value, list | tuple):
        raise TypeError("a list")
    if len(hints) == 2 and hints[1] is Ellipsis:
        return tuple(_convert(item, hints[0]) for item in value)
    if len(value) != len(hints):
        raise TypeError(f"a list of {len(hints)} values")
    return tuple(_convert(item, hint) for item, hint in zip(value, hints, strict=True))
