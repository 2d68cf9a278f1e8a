"""Declared parameters: frozen, bounded, strict, and the declaration of a stage with them; conversion of
values to declared types; `Secret`, which is never shown. Code, help, YAML and docs use the same
declaration.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from processors.errors import ParamError, nearest, shown_value
from processors.request_values import When

if TYPE_CHECKING:
    from processors.base import Processor

_WIDEST = 2**62  # integers are smaller, to fit the int64 columns of a stage
_DIGITS = 40  # digits up to which an integer is read and shown in full


class Bounds(NamedTuple):
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
        for index in mismatch.path:
            value = (list(value.items()) if isinstance(value, Mapping) else value)[index]
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        shown = shown_number(value) if is_integer else shown_value(value)
        prefix = f"has {shown} in it, where there has" if mismatch.path else f"is {shown}, but has"
        raise ParamError(f"{prefix} to be {mismatch.expected}.", mismatch.path) from None
    return converted


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
        if isinstance(value, float) and not math.isfinite(value) and (finite or value != -math.inf):
            raise _Mismatch("a finite number")
        if not bounds.allow(value):
            raise _Mismatch(f"a number {bounds}")
        if isinstance(value, int) and bounds.le is None and not -_WIDEST < value < _WIDEST:
            raise _Mismatch("a number of 18 digits at the most")


def _convert(value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(value, get_args(hint))
    if origin is Literal:
        if value in get_args(hint) and isinstance(value, str):
            return value
        raise _Mismatch("one of " + ", ".join(get_args(hint)))
    if origin is tuple:
        return _convert_tuple(value, get_args(hint))
    if hint in (bool, str, type(None)) and isinstance(value, hint):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and is_number and (isinstance(value, float) or abs(value) < 2**1023):
        return float(value)
    if hint is int and is_number and (isinstance(value, int) or value.is_integer()):
        return int(value)
    raise _Mismatch(_KINDS[hint])


_KINDS = {
    bool: "true or false",
    str: "a text",
    float: "a number",
    int: "a whole number",
    type(None): "null",
}


def _convert_union(value: Any, hints: tuple[Any, ...]) -> Any:
    mismatches = []
    for hint in hints:
        try:
            return _convert(value, hint)
        except _Mismatch as mismatch:
            mismatches.append(mismatch)
    deepest = max(mismatches, key=lambda mismatch: len(mismatch.path))
    raise deepest if deepest.path else _Mismatch(" or ".join(mismatch.expected for mismatch in mismatches))


def _convert_tuple(value: Any, hints: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, Mapping):  # {42: 1.5, " word": -2} becomes pairs; a key of digits is an id
        ids = (whole(str(key)) for key in value)
        value = [(key if id_ is None else id_, value[key]) for key, id_ in zip(value, ids, strict=True)]
    if not isinstance(value, list | tuple):
        raise _Mismatch("a list")
    if len(hints) == 2 and hints[1] is Ellipsis:
        return tuple(_each(value, lambda item: _convert(item, hints[0])))
    if len(value) != len(hints):
        raise _Mismatch(f"a list of {len(hints)} values")
    return tuple(_each(zip(value, hints, strict=True), lambda pair: _convert(*pair)))


MOST = 2**31 - 1  # upper bound of ids, counts and lengths
WHEN = "when"  # the field that every stage has in addition to its own
WHEN_DOC = "Where in the output the stage acts; null is everywhere."


P = TypeVar("P", bound="Params")

hints_of: Callable[[Any], dict[str, Any]] = cache(get_type_hints)  # types by field, of a class


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

    `doc` is one sentence, used as help text, YAML comment and docs row. `hint` is appended to the error for a
    refused value. `finite=False` also allows -inf (a ban written as a bias).
    """
    bounds = Bounds(ge, gt, le, lt)
    return dataclasses.field(
        default=default, metadata={"doc": doc, "bounds": bounds, "hint": hint, "finite": finite}
    )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Params:
    """Base class of stage parameters. The defaults mean "off"; the first field is the main parameter.

    Every stage has the field `when` (its condition) in addition to its `own_fields`.
    """

    when: When | None = dataclasses.field(
        default=None, kw_only=True, repr=False, metadata=param(None, WHEN_DOC).metadata
    )

    def __post_init__(self) -> None:
        for field in self.own_fields():
            object.__setattr__(self, field.name, _converted(type(self), field, getattr(self, field.name)))
        if self.when is not None:
            try:
                object.__setattr__(self, WHEN, When.of(self.when))
            except ParamError as error:
                raise ParamError(f"{WHEN} {error}") from None

    def __repr__(self) -> str:
        shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.own_fields())
        return f"{type(self).__qualname__}({shown})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        values = _values_of(type(self))
        return bool(values(self) == values(other))

    def __hash__(self) -> int:
        return hash(_values_of(type(self))(self))

    @classmethod
    def own_fields(cls) -> tuple[dataclasses.Field[Any], ...]:
        """Return the declared fields of the stage, in order, without `when`."""
        return _own_fields(cls)

    def is_off(self) -> bool:
        """Whether these values switch the stage off."""
        main = self.main()
        return bool(getattr(self, main) == type(self).default(main))

    @classmethod
    def main(cls) -> str:
        """Return the name of the field that `stage=value` sets."""
        return cls.own_fields()[0].name

    @classmethod
    def is_list(cls) -> bool:
        """Whether the main parameter is a list, so that two values can be merged."""
        hint = hints_of(cls)[cls.main()]
        return any(Ellipsis in get_args(entry) for entry in (hint, *get_args(hint)))

    @classmethod
    def default(cls, name: str) -> Any:
        """Return the default value of a field."""
        return _defaults(cls)[name]

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, stage: str = "") -> Self:
        """Build from parsed YAML or JSON. ParamError for an unknown key names the nearest known one."""
        names = {field.name for field in dataclasses.fields(cls)}
        for key in mapping:
            if key not in names:
                raise ParamError(f"Stage {stage!r} has no parameter {key!r}. {nearest(str(key), names)}")
        try:
            return cls(**mapping)
        except ParamError as error:
            raise ParamError(f"{stage}: {error}" if stage else str(error), error.path) from None

    def to_mapping(self) -> dict[str, Any]:
        """Return the values that differ from the defaults, as plain lists, numbers and strings.

        With a condition the main value is always included, because it may switch the stage off.
        """
        values = {field.name: getattr(self, field.name) for field in self.own_fields()}
        changed = {name: listed(value) for name, value in values.items() if value != self.default(name)}
        if self.when is None:
            return changed
        return {self.main(): listed(values[self.main()]), **changed, WHEN: self.when.to_mapping()}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some values changed."""
        return dataclasses.replace(self, **changes)


@dataclass_transform(frozen_default=True)
def parameters(cls: type[P]) -> type[P]:
    """Declare parameters as `dataclass(frozen=True, slots=True)` does, with comparison and repr of Params.

    Generating these two for each class of built-in parameters would lengthen every start.
    """
    return dataclass(frozen=True, slots=True, repr=False, eq=False)(cls)


def describe(params: type[Params]) -> dict[str, dict[str, Any]]:
    """Return doc, type hint, default and bounds of each field, for help, YAML comments and docs."""
    hints = hints_of(params)
    return {
        field.name: {
            "doc": field.metadata["doc"],
            "type": hints[field.name],
            "default": field.default,
            "bounds": field.metadata["bounds"],
        }
        for field in params.own_fields()
    }


_values_of: Callable[[Any], Callable[[Any], Any]] = cache(
    lambda params: attrgetter(*(field.name for field in dataclasses.fields(params)))
)
_own_fields: Callable[[Any], tuple[dataclasses.Field[Any], ...]] = cache(
    lambda params: tuple(field for field in dataclasses.fields(params) if field.name != WHEN)
)
_defaults: Callable[[Any], dict[str, Any]] = cache(
    lambda params: {field.name: field.default for field in dataclasses.fields(params)}
)


def listed(value: Any) -> Any:
    """Return a value of a field as plain data: tuples become lists, and a secret a text."""
    if isinstance(value, Secret):
        return str(value)
    return [listed(item) for item in value] if isinstance(value, tuple) else value


def _converted(owner: type[Params], field: dataclasses.Field[Any], value: Any) -> Any:
    hint = hints_of(owner)[field.name]
    bounds, finite = field.metadata["bounds"], field.metadata["finite"]
    try:
        return convert(value, hint, bounds, finite=finite)
    except ParamError as error:
        tail = f" {field.metadata['hint']}" if field.metadata["hint"] else ""
        raise ParamError(f"{field.name} {error}{tail}", error.path) from None


class Phase(IntEnum):
    """The phases of a chain, in order."""

    CONSTRAIN = 0
    ADJUST = 1
    SCALE = 2
    TRUNCATE = 3
    GATE = 4


class Note(NamedTuple):
    """Notes on one stage. In the formula x are the incoming logits and p their softmax."""

    formula: str
    reference: str
    example: str
    elsewhere: str


@dataclass(frozen=True, slots=True)
class StageSpec:
    """Declaration of a stage."""

    name: str
    phase: Phase
    params: type[Params]
    target: str  # "module:Class"
    source: str = "built-in"  # shown to users: the plug-in or module that added the stage
    note: Note | None = None

    @classmethod
    def of(cls, stage: type[Processor[Any]]) -> StageSpec:
        """Return the declaration of a built-in stage."""
        target = f"{stage.__module__}:{stage.__qualname__}"
        return cls(stage.name, stage.phase, stage.Params, target, note=stage.about)


MOST_KEY = 2**64 - 1
_SALT = b"processors.params"
_COST = 2**14  # cost of scrypt: a fingerprint takes about 50 ms, which makes a search through small keys slow


class Secret:
    """One or several whole numbers from 0 to 2**64 - 1, equal and hashed by value.

    `str`, `repr` and `format` give the fingerprint: 32 bits of a slow hash, as in "#3f9a1c22". The numbers
    cannot be recovered from 32 bits, but a changed key is noticed. Raises ParamError, without the value, for
    other values.
    """

    __slots__ = ("_numbers",)
    _numbers: tuple[int, ...]

    def __init__(self, numbers: int | Iterable[int]) -> None:
        try:
            values = (numbers,) if isinstance(numbers, int) else tuple(numbers)
        except TypeError:
            values = ()
        if not values or not all(type(number) is int and 0 <= number <= MOST_KEY for number in values):
            raise ParamError(
                f"is no key, but has to be a whole number from 0 to {MOST_KEY}, or a list of such."
            )
        object.__setattr__(self, "_numbers", values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret does not change")

    @property
    def numbers(self) -> tuple[int, ...]:
        return self._numbers

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the key, shown in its place."""
        return fingerprint_of(" ".join(map(str, self.numbers)).encode())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.numbers == other.numbers

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __str__(self) -> str:
        return self.fingerprint

    __repr__ = __str__

    def __reduce__(self) -> tuple[type[Secret], tuple[tuple[int, ...]]]:
        return Secret, (self.numbers,)


@cache
def fingerprint_of(content: bytes) -> str:
    """Return 32 bits of a slow hash as text. The same content has the same fingerprint everywhere."""
    digest = hashlib.scrypt(content, salt=_SALT, n=_COST, r=8, p=1, dklen=4)
    return f"#{digest.hex()}"
