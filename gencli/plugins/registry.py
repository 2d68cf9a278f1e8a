"""The registry of a run: built-in stages and plugins.

A plugin is imported when a run names its stage; a broken plugin is an error only then.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from gencli.errors import PluginError
from gencli.plugins.discovery import DRAFTERS, SWITCH, Plugin, installed_plugins, parse_plugin
from processors.catalog import BUILTIN, StageSpec
from processors.errors import UnknownStage
from processors.registry import Registry

if TYPE_CHECKING:
    from gencli.speculative.drafter import Drafter
    from processors.base import Processor

__all__ = ["PluginRegistry", "make_registry"]

_RENAMED = {"passes": "is_autoregressive", "passes_for": "is_autoregressive_for"}  # renamed attributes


class PluginRegistry(Registry):
    """Built-in stages and plugins. An installed plugin is registered when its name is first used."""

    def __init__(self, installed: Iterable[Plugin] | None = None) -> None:
        super().__init__(BUILTIN)
        self._given = installed
        self._drafters: dict[str, tuple[str, type[Drafter]]] = {}  # source and class of each drafter, by name

    @functools.cached_property
    def installed(self) -> tuple[Plugin, ...]:
        """The stage plugins of installed packages, read on first use."""
        return installed_plugins() if self._given is None else tuple(self._given)

    def spec(self, name: str) -> StageSpec:
        """Return the declaration of a stage. Raises UnknownStage, or PluginError for a broken plugin."""
        if name not in self._specs:
            plugin = next((plugin for plugin in self.installed if plugin.name == name), None)
            if plugin is None:
                raise UnknownStage(name, {*self._specs, *(plugin.name for plugin in self.installed)})
            self.add(plugin)
        return self._specs[name]

    def add(self, plugin: Plugin) -> StageSpec:
        """Import a plugin, check it, and register its stage. Raises PluginError."""
        from gencli.plugins.loading import load_stage

        return self._register(load_stage(plugin), plugin)

    def take(self, plugin: Plugin) -> None:
        """Import, check and register a plugin, which may be a stage or a drafter. Raises PluginError."""
        from gencli.plugins.loading import load_plugin
        from gencli.speculative.drafter import Drafter

        kind = load_plugin(plugin)
        if not issubclass(kind, Drafter):
            self._register(kind, plugin)
            return
        for old, new in _RENAMED.items():
            if hasattr(kind, old):
                raise PluginError(
                    f"The drafter {kind.name} in {plugin.source} has {old}, which is now {new}.",
                    hint=f"Rename it: def {new}" if old.endswith("for") else f"Rename it: {new} = True",
                )
        if kind.name in self._drafters:
            self._refuse_two("drafters", kind.name, self._drafters[kind.name][0], plugin.source)
        self._drafters[kind.name] = (plugin.source, kind)

    def take_class(self, stage: type[Processor[Any]]) -> None:
        """Check and register a stage class passed by Python code. Raises PluginError."""
        from gencli.plugins.validation import check_class, check_defaults

        source = f"{getattr(stage, '__module__', '?')}:{getattr(stage, '__qualname__', repr(stage))}"
        check_class(stage, source)
        check_defaults(stage, source)
        if stage.name in self:
            self._refuse_two("stages", stage.name, self.spec(stage.name).source, source)
        self.register(stage, source=source)

    def drafter(self, name: str) -> type[Drafter] | None:
        """Return the class of a drafter from a plugin or an installed package; None if there is none."""
        for plugin in installed_plugins(DRAFTERS) if self._given is None else ():
            if plugin.name == name:
                self.take(plugin)
        return self._drafters[name][1] if name in self._drafters else None

    def drafters(self) -> dict[str, str]:
        """Return the source of each registered drafter, by name."""
        return {name: source for name, (source, _) in self._drafters.items()}

    def _register(self, stage: type[Processor[Any]], plugin: Plugin) -> StageSpec:
        from gencli.plugins.validation import check_defaults

        check_defaults(stage, plugin.source)
        self._refuse_taken(stage.name, plugin)
        self.register(stage, source=plugin.source)
        return self._specs[stage.name]

    def _refuse_taken(self, name: str, plugin: Plugin) -> None:
        taken = [self._specs[name].source] if name in self._specs else []
        taken += [other.source for other in self.installed if other.name == name and other is not plugin]
        if taken:
            self._refuse_two("stages", name, taken[0], plugin.source)

    def _refuse_two(self, what: str, name: str, first: str, second: str) -> NoReturn:
        raise PluginError(
            f"Two {what} have the name {name!r}: one is {first}, the other from {second}.",
            hint=f"Rename one, or leave one out; {SWITCH}=1 disables all installed plugins.",
        )


def make_registry(plugins: Iterable[str | type[Processor[Any]]] = ()) -> PluginRegistry:
    """Return the registry of a run: built-in stages, installed plugins, and the given `plugins`.

    Python code may also pass classes of stages.
    """
    registry = PluginRegistry()
    for plugin in plugins:
        if isinstance(plugin, str):
            registry.take(parse_plugin(plugin))
        else:
            registry.take_class(plugin)
    return registry
