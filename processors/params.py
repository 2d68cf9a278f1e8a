"""Declared parameters: frozen, bounded, strict. Code, help, YAML and docs use the same declaration."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, get_args, get_type_hints

from processors.conditions.when import When
from processors.conversion import Bounds, convert
from processors.errors import ParamError, nearest
from processors.secret import Secret

__all__ = [
    "MOST",
    "WHEN",
    "WHEN_DOC",
    "Params",
    "describe",
    "hints_of",
    "param",
]

MOST = 2**31 - 1  # upper bound of ids, counts and lengths
WHEN = "when"  # the field that every stage has in addition to its own
WHEN_DOC = "Where in the output the stage acts; null is everywhere."


hints_of: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)  # types by field, of a class


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


@dataclass(frozen=True, slots=True)
class Params:
    """Base class of stage parameters. The defaults mean "off"; the first field is the main parameter.

    Every stage has the field `when` (its condition) in addition to its `own_fields`.
    """

    when: When | None = dataclasses.field(
        default=None,
        kw_only=True,
        repr=False,
        metadata={"doc": WHEN_DOC, "bounds": Bounds(), "hint": "", "finite": True},
    )

    def __post_init__(self) -> None:
        for field in self.own_fields():
            value = _converted(type(self), field, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        if self.when is not None:
            try:
                object.__setattr__(self, WHEN, When.of(self.when))
            except ParamError as error:
                raise ParamError(f"{WHEN} {error}") from None

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
        known = {field.name for field in dataclasses.fields(cls)}
        for key in mapping:
            if key not in known:
                raise ParamError(f"Stage {stage!r} has no parameter {key!r}. {nearest(str(key), known)}")
        try:
            return cls(**mapping)
        except ParamError as error:
            raise ParamError(f"{stage}: {error}" if stage else str(error), error.path) from None

    def to_mapping(self) -> dict[str, Any]:
        """Return the values that differ from the defaults, as plain lists, numbers and strings.

        With a condition the main value is always included, because it may switch the stage off.
        """
        values = {field.name: getattr(self, field.name) for field in self.own_fields()}
        changed = {name: _plain(value) for name, value in values.items() if value != self.default(name)}
        if self.when is None:
            return changed
        return {self.main(): _plain(values[self.main()]), **changed, WHEN: self.when.to_mapping()}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some values changed."""
        return dataclasses.replace(self, **changes)


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


def _declared(params: type[Params]) -> tuple[dataclasses.Field[Any], ...]:
    return tuple(field for field in dataclasses.fields(params) if field.name != WHEN)


def _of_defaults(params: type[Params]) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(params)}


_own_fields: Callable[[Any], tuple[dataclasses.Field[Any], ...]] = functools.cache(_declared)
_defaults: Callable[[Any], dict[str, Any]] = functools.cache(_of_defaults)


def _plain(value: Any) -> Any:
    if isinstance(value, Secret):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _converted(owner: type[Params], field: dataclasses.Field[Any], value: Any) -> Any:
    hint = hints_of(owner)[field.name]
    bounds, finite = field.metadata["bounds"], field.metadata["finite"]
    try:
        return convert(value, hint, bounds, finite=finite)
    except ParamError as error:
        tail = f" {field.metadata['hint']}" if field.metadata["hint"] else ""
        raise ParamError(f"{field.name} {error}{tail}", error.path) from None
