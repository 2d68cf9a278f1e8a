"""What is known of plugins without torch: those of installed packages and of the command line, found
without importing them, and the Params classes of adapted callables, made from their signatures.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import os
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from gencli.errors import PluginError, UsageError
from processors.errors import ParamError
from processors.params import Params, listed, param

GROUP, DRAFTERS = "gencli.processors", "gencli.drafters"
SWITCH = "GENCLI_NO_PLUGINS"


@dataclass(frozen=True, slots=True)
class Plugin:
    """Location of a stage or drafter: a file or a module, and an attribute in it.

    `source`: shown in messages; package and version, or the text that was typed. `name`: name of the entry
    point, which has to equal the name of the stage or drafter.
    """

    source: str
    path: str = ""
    module: str = ""
    attribute: str = ""
    name: str = ""


def installed_plugins(group: str = GROUP) -> tuple[Plugin, ...]:
    """Return the entry points of installed packages; () if GENCLI_NO_PLUGINS is set."""
    if os.environ.get(SWITCH, "0") not in ("", "0"):
        return ()
    return tuple(
        Plugin(
            source=f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value,
            module=entry.module,
            attribute=entry.attr,
            name=entry.name,
        )
        for entry in entry_points(group=group)
    )


def parse_plugin(text: str) -> Plugin:
    """Parse path.py, path.py:Name or module:Name. Raises UsageError."""
    if text.endswith(".py"):
        return Plugin(text, path=text)
    head, _, attribute = text.rpartition(":")
    if not head or not attribute.isidentifier():
        raise UsageError(
            f"`plugin` = {text!r} is not of the form path.py, path.py:Class or module:Class.",
            hint="A module needs the name of the class in it.",
        )
    if head.endswith(".py"):
        return Plugin(text, path=head, attribute=attribute)
    return Plugin(text, module=head, attribute=attribute)


_SIMPLE = (bool, int, float, str, type(None))
_ANYTHING = bool | int | float | str  # type of arguments without an annotation


@dataclass(frozen=True)  # no slots: `super` needs the original class
class AdapterParams(Params):
    """Params of an adapted stage: `enabled`, which naming the stage sets, and its arguments."""

    enabled: bool = param(False, "Whether the stage is on; naming the stage sets it.")

    make: ClassVar[Callable[..., Any]]
    required: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.enabled:
            self.build()  # runs the callable's own checks before the run

    def is_off(self) -> bool:
        return not self.enabled

    @classmethod
    def main(cls) -> str:
        """Return the first argument, if there is one."""
        return [field.name for field in cls.own_fields()][:2][-1]

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, stage: str = "") -> Self:
        return super().from_mapping({"enabled": True, **mapping}, stage=stage)

    def to_mapping(self) -> dict[str, Any]:
        """Return the arguments, without `enabled`."""
        return {key: v for key, v in super().to_mapping().items() if key != "enabled" or not self.enabled}

    def build(self) -> Callable[..., Any]:
        """Return a new callable (ids, logits) -> logits with these values."""
        names = [field.name for field in self.own_fields() if field.name != "enabled"]
        values = {name: listed(getattr(self, name)) for name in names}
        for name, value in values.items():
            if name in self.required and value is None:
                raise ParamError(f"{name} is required: it has no default.")
        try:
            built: Callable[..., Any] = type(self).make(**values)
        except (Exception, SystemExit, GeneratorExit) as error:
            raise ParamError(f"{error}" or type(error).__name__) from error
        return built


def params_of(
    make: Callable[..., Any], parameters: list[inspect.Parameter], *, owner: Any, name: str, source: str
) -> type[AdapterParams]:
    """Return the Params of an adapted stage, whose `make` takes these parameters as keywords."""
    annotated = owner
    if isinstance(owner, type):
        annotated = next(vars(base)["__init__"] for base in owner.__mro__ if "__init__" in vars(base))
    hints: dict[str, Any] = {}
    with suppress(Exception):  # annotations with unresolvable names
        hints = get_type_hints(annotated)
    fields = list(_fields(parameters, hints, source))
    required = frozenset(entry.name for entry in parameters if entry.default is entry.empty)
    return dataclasses.make_dataclass(
        f"{name.title().replace('_', '')}Params",
        fields,
        bases=(AdapterParams,),
        frozen=True,
        namespace={
            "make": staticmethod(make),
            "required": required,
            "__module__": __name__,
            "__doc__": inspect.cleandoc(owner.__doc__ or f"Adapted from {source}."),
        },
    )


def _fields(
    parameters: list[inspect.Parameter], hints: Mapping[str, Any], source: str
) -> Iterator[tuple[str, Any, Any]]:
    for entry in parameters:
        is_required = entry.default is entry.empty
        default = None if is_required else _tupled(entry.default)
        guess = type(default) if isinstance(default, _ANYTHING) else _ANYTHING
        hint = _supported(hints.get(entry.name, guess))
        if entry.name == "enabled" or (hint is None and is_required):
            raise PluginError(
                f"The plugin {source} takes the argument {entry}, whose type no option has.",
                hint="Wrap it in a function that takes numbers, texts or lists.",
            )
        if hint is None:
            continue  # it has a default
        doc = "An argument of the adapted callable" + (", required." if is_required else ".")
        yield entry.name, hint | None if default is None else hint, param(default, doc, finite=False)


def _supported(hint: Any) -> Any:
    """Return the type in the form that Params support, with tuples for lists; None if unsupported."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return hint
    if origin is Literal:
        return hint if all(isinstance(argument, str) for argument in arguments) else None
    if origin in (Union, types.UnionType):
        members = [inner for argument in arguments if (inner := _supported(argument)) is not None]
        return functools.reduce(operator.or_, members) if set(members) - {type(None)} else None
    if origin not in (list, tuple) or not arguments:
        return None
    inner = [_supported(argument) for argument in arguments if argument is not Ellipsis]
    is_long = origin is list or Ellipsis in arguments
    return None if None in inner else types.GenericAlias(tuple, (*inner, ...) if is_long else tuple(inner))


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list | tuple) else value
