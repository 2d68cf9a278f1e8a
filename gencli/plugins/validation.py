"""Check the classes of stages and drafters when they are registered."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from gencli.config.options.drafts import BUILT_IN, NO_DRAFTER
from gencli.errors import PluginError
from gencli.plugins.discovery import Plugin
from gencli.speculative.drafter import Drafter
from processors.base import Processor
from processors.catalog import Phase
from processors.errors import ParamError
from processors.params import WHEN, Params

__all__ = ["check_class", "check_defaults", "check_drafter"]

# The arguments with which the library calls each method, after `self`.
_CALLS = {
    "__init__": ("env",),
    "apply": ("logits", "rows"),
    "admit": ("slot", "params", "request"),
    "commit": ("slot", "tokens"),
    "release": ("slot",),
    "fork": ("source", "target"),
}


def check_class(stage: type[Processor[Any]], source: str) -> None:
    """Raise PluginError for the first fault of a stage class."""
    for seen, expected in _faults(stage):
        _refuse(stage, source, seen, expected)


def check_defaults(stage: type[Processor[Any]], source: str) -> None:
    """Raise PluginError if the stage is on by default."""
    if not stage.Params().is_off():
        values = {field.name: field.default for field in stage.Params.own_fields()}
        seen = f"is on with the defaults of {stage.Params.__name__}: {values}"
        _refuse(stage, source, seen, "defaults that mean off")


def check_drafter(drafter: type[Drafter], plugin: Plugin) -> None:
    """Raise PluginError for a drafter with a wrong name, without `propose`, or with required arguments."""
    name = drafter.name
    if not re.fullmatch("[a-z][a-z0-9_-]*", name):
        _refuse(drafter, plugin.source, f"has the name {name!r}", 'name = "my_drafter", in small letters')
    if name in (*BUILT_IN, NO_DRAFTER):
        _refuse(drafter, plugin.source, f"has the name {name!r}", "a name that gencli does not use")
    if plugin.name and name != plugin.name:
        _refuse(drafter, plugin.source, f"has the name {name!r}", f"that of its entry point, {plugin.name!r}")
    if drafter.propose is Drafter.propose:
        _refuse(drafter, plugin.source, "has no propose", "propose(self, asks)")
    try:
        inspect.signature(drafter).bind()
    except TypeError:
        seen = f"takes {inspect.signature(drafter)}"
        _refuse(drafter, plugin.source, seen, "a class without arguments")


def _refuse(stage: type[Any], source: str, seen: str, expected: str) -> NoReturn:
    raise PluginError(
        f"The plugin {source}: {stage.__name__} {seen}. Expected: {expected}.",
        hint="docs/plugins.md says what a stage has to be.",
    )


def _faults(stage: type[Processor[Any]]) -> Iterator[tuple[str, str]]:
    name = getattr(stage, "name", None)
    if name is None:
        yield "has no name", 'name = "my_stage"'
    elif not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
        yield f"has the name {name!r}", "small letters, digits and _, a letter first"
    phase = getattr(stage, "phase", None)
    if not isinstance(phase, Phase):
        seen = "has no phase" if phase is None else f"has the phase {phase!r}"
        yield seen, "one of " + ", ".join(f"Phase.{entry.name}" for entry in Phase)
    yield from _params_faults(getattr(stage, "Params", None))
    for method, arguments in _CALLS.items():
        yield from _method_faults(stage, method, arguments)


def _params_faults(params: Any) -> Iterator[tuple[str, str]]:
    expected = "Params = a frozen dataclass derived from processors.Params, its fields made by param(...)"
    if params is None:
        yield "has no Params", expected
        return
    if not isinstance(params, type) or not issubclass(params, Params):
        yield f"has as Params {getattr(params, '__name__', repr(params))}", expected
        return
    if "__dataclass_fields__" not in vars(params) or not params.own_fields():
        yield f"has Params {params.__name__} without fields of its own, or without @dataclass", expected
        return
    if WHEN in vars(params).get("__annotations__", ()):
        yield f"has the field {params.__name__}.{WHEN}, which every stage has", "another name"
        return
    for field in params.own_fields():
        if not {"doc", "bounds", "hint", "finite"} <= set(field.metadata):
            yield f"has the field {params.__name__}.{field.name} without a declaration", "param(default, doc)"
            return
    try:
        params().is_off()
    except ParamError as error:
        yield (
            f"has a default in {params.__name__} that is not valid ({error})",
            "a valid default",
        )
    except (Exception, SystemExit, GeneratorExit) as error:
        yield f"has Params {params.__name__} that cannot be constructed ({error!r})", "types that param takes"


def _method_faults(
    stage: type[Processor[Any]], method: str, arguments: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    expected = f"{method}({', '.join(('self', *arguments))})"
    function = getattr(stage, method)
    if getattr(function, "__isabstractmethod__", False):
        yield f"has no {method}", expected
        return
    try:
        inspect.signature(function).bind(None, *arguments)
    except TypeError:
        yield f"has {method}{inspect.signature(function)}", expected
    except ValueError:  # no readable signature
        return
