"""Loads the class of a plugin, which runs its code for the first time, checks it, and adapts transformers'
LogitsProcessor classes and callables (ids, logits) -> logits as stages.
"""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch import Tensor

from gencli.core.request import BUILT_IN_DRAFTERS, NO_DRAFTER
from gencli.errors import PluginError
from gencli.files import open_regular
from gencli.plugins.discovery import AdapterParams, Plugin, params_of
from gencli.speculative.drafter import Drafter
from processors.base import Admission, Processor
from processors.catalog import Phase
from processors.errors import ParamError, raised_in
from processors.foreign_stages import checked_logits
from processors.params import WHEN, Params
from processors.rows import Rows


def load_stage(plugin: Plugin) -> type[Processor[Any]]:
    """Return the class of a plugin as `load_plugin` does. Raises PluginError for a drafter."""
    kind = load_plugin(plugin)
    if issubclass(kind, Drafter):
        raise PluginError(f"The plugin {plugin.source} is a drafter, not a stage: name it with `draft`.")
    return kind


def load_plugin(plugin: Plugin) -> type[Processor[Any]] | type[Drafter]:
    """Return the plugin's class, checked; a callable is adapted as a stage. Raises PluginError."""
    try:
        module = _file(Path(plugin.path)) if plugin.path else importlib.import_module(plugin.module)
        if plugin.attribute and not hasattr(module, plugin.attribute):
            raise PluginError(f"The plugin {plugin.source} has no {plugin.attribute!r} in it.")
        target = getattr(module, plugin.attribute) if plugin.attribute else _only_class(module, plugin)
    except PluginError:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:  # any exception of the plugin's code
        raise PluginError(
            f"The plugin {plugin.source} cannot be imported: "
            f"{type(error).__name__}: {error}{raised_in(error)}",
            hint="`debug` shows the traceback.",
        ) from error
    if isinstance(target, type) and issubclass(target, Drafter):
        check_drafter(target, plugin)
        return target
    if isinstance(target, type) and issubclass(target, Processor):
        stage = target
    elif callable(target):
        stage = adapt(target, plugin.name or stage_name(plugin.attribute), plugin.source)
    else:
        raise PluginError(
            f"The plugin {plugin.source} is a {type(target).__name__}, but has to be a Processor class, "
            "a Drafter class, or a callable (ids, logits) -> logits."
        )
    check_class(stage, plugin.source)
    if plugin.name and stage.name != plugin.name:
        raise PluginError(
            f"The plugin {plugin.source} has the stage {stage.name!r} under the entry point "
            f"{plugin.name!r}, but the two names have to be the same."
        )
    return stage


def _file(path: Path) -> ModuleType:
    try:
        open_regular(path).close()
    except FileNotFoundError:
        raise PluginError(f"The plugin {path} does not exist: no such file.") from None
    except OSError as error:
        raise PluginError(f"The plugin {path} cannot be read: {error.strerror}.") from None
    # A unique name, so that the module shadows no other one; dataclasses look their module up by name.
    name = f"gencli_plugin_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"The plugin {path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _only_class(module: ModuleType, plugin: Plugin) -> type[Any]:
    """Return the one Processor or Drafter class that the module defines."""
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Processor | Drafter)
        and value.__module__ == module.__name__
    ]
    if len(classes) == 1:
        return classes[0]
    where = plugin.path or plugin.module
    if not classes:
        raise PluginError(
            f"The plugin {plugin.source} defines no subclass of processors.Processor.",
            hint=f"Name a callable (ids, logits) -> logits as {where}:NAME.",
        )
    names = ", ".join(stage.__name__ for stage in classes)
    raise PluginError(
        f"The plugin {plugin.source} defines {len(classes)} stages: {names}.",
        hint=f"Name one of them: {where}:{classes[0].__name__}.",
    )


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
    name, refuse = drafter.name, functools.partial(_refuse, drafter, plugin.source)
    if not re.fullmatch("[a-z][a-z0-9_-]*", name):
        refuse(f"has the name {name!r}", 'name = "my_drafter", in small letters')
    if name in (*BUILT_IN_DRAFTERS, NO_DRAFTER):
        refuse(f"has the name {name!r}", "a name that gencli does not use")
    if plugin.name and name != plugin.name:
        refuse(f"has the name {name!r}", f"that of its entry point, {plugin.name!r}")
    if drafter.propose is Drafter.propose:
        refuse("has no propose", "propose(self, asks)")
    try:
        inspect.signature(drafter).bind()
    except TypeError:
        refuse(f"takes {inspect.signature(drafter)}", "a class without arguments")


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
        expected, function = f"{method}({', '.join(('self', *arguments))})", getattr(stage, method)
        if getattr(function, "__isabstractmethod__", False):
            yield f"has no {method}", expected
            continue
        with suppress(ValueError):  # no readable signature
            try:
                inspect.signature(function).bind(None, *arguments)
            except TypeError:
                yield f"has {method}{inspect.signature(function)}", expected


def _params_faults(params: Any) -> Iterator[tuple[str, str]]:
    seen = ""
    if params is None:
        seen = "has no Params"
    elif not isinstance(params, type) or not issubclass(params, Params):
        seen = f"has as Params {getattr(params, '__name__', repr(params))}"
    elif "__dataclass_fields__" not in vars(params) or not params.own_fields():
        seen = f"has Params {params.__name__} without fields of its own, or without @dataclass"
    if seen:
        yield (
            seen,
            "Params = a frozen dataclass derived from processors.Params, its fields made by param(...)",
        )
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
        yield (f"has a default in {params.__name__} that is not valid ({error})", "a valid default")
    except (Exception, SystemExit, GeneratorExit) as error:
        yield f"has Params {params.__name__} that cannot be constructed ({error!r})", "types that param takes"


_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Adapter(Processor[AdapterParams]):
    """Calls the adapted callable once for each row, with ids [1, L] and logits [1, V] of the row.

    Each slot has its own instance, so that the instance's state belongs to one request.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._calls: dict[int, Callable[[Tensor, Tensor], Tensor]] = {}

    def admit(self, slot: int, params: AdapterParams, request: Admission) -> None:
        self._calls[slot] = params.build()

    def release(self, slot: int) -> None:
        self._calls.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        self._calls[target] = copy.deepcopy(self._calls[source])

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return processed logits [A, V]. The callable gets the ids of prompt, output and visible drafts."""
        seen = rows.visible()
        out = []
        for row, slot in enumerate(rows.host_slots):
            ids, row_logits = seen.ids[row, seen.valid[row]][None], logits[row : row + 1]
            out.append(checked_logits(self._calls[slot](ids, row_logits), row_logits))
        return torch.cat(out)


def adapt(target: Callable[..., Any], name: str, source: str) -> type[Adapter]:
    """Return a stage class for a target: a class, a function, or a callable object, which is copied.

    Raises PluginError for a target with too few arguments or without a signature.
    """
    make: Callable[..., Any] = target
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        raise PluginError(f"The plugin {source} has no readable signature.") from None
    if not isinstance(target, type):
        if len(parameters) < 2:
            raise PluginError(f"The plugin {source} takes {len(parameters)} arguments, not (ids, logits).")
        make, parameters = functools.partial(_bound, target), parameters[2:]
    fields = [entry for entry in parameters if entry.kind in _KEYWORDS]
    is_warper = getattr(target, "__name__", "").endswith("Warper")
    params = params_of(make, fields, owner=target, name=name, source=source)
    return type(
        name.title().replace("_", ""),
        (Adapter,),
        {
            "name": name,
            "phase": Phase.TRUNCATE if is_warper else Phase.ADJUST,
            "Params": params,
            "__module__": getattr(target, "__module__", __name__),
            "__doc__": inspect.getdoc(target) or f"Adapted from {source}.",
        },
    )


def stage_name(attribute: str) -> str:
    """Return a class name in snake case: RepetitionPenaltyLogitsProcessor becomes repetition_penalty."""
    stem = re.sub("(LogitsProcessor|LogitsWarper|Warper|Processor)$", "", attribute) or attribute
    words = re.sub("([a-z0-9])([A-Z])", r"\1_\2", stem)
    return re.sub("([A-Z]+)([A-Z][a-z])", r"\1_\2", words).lower().lstrip("_")


def _bound(call: Callable[..., Any], **values: Any) -> Callable[..., Any]:
    return functools.partial(call if inspect.isfunction(call) else copy.deepcopy(call), **values)
