"""Loads the class of a plugin; this runs the plugin's code for the first time."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

from gencli.errors import PluginError
from gencli.files import open_regular
from gencli.plugins.adapter import adapt, stage_name
from gencli.plugins.discovery import Plugin
from gencli.plugins.validation import check_class, check_drafter
from gencli.speculative.drafter import Drafter
from processors.base import Processor
from processors.errors import raised_in

__all__ = ["load_plugin", "load_stage"]


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
        target = _attribute(module, plugin) if plugin.attribute else _only_class(module, plugin)
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
    """Execute a file and return its module."""
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


def _attribute(module: ModuleType, plugin: Plugin) -> Any:
    if not hasattr(module, plugin.attribute):
        raise PluginError(f"The plugin {plugin.source} has no {plugin.attribute!r} in it.")
    return getattr(module, plugin.attribute)


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
