"""The registry of a run: the built-in stages with the plugins beside them.

No plugin is imported before a run names its stage; a broken one is an error only then.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from gencli.errors import PluginError
from gencli.plugins.discovery import SWITCH, Plugin, installed_plugins, parse_plugin
from processors.catalog import BUILTIN, StageSpec
from processors.errors import UnknownStage
from processors.registry import Registry

__all__ = ["PluginRegistry", "make_registry"]


class PluginRegistry(Registry):
    """The built-in stages, and plugins: an installed one joins when it is first asked for."""

    def __init__(self, installed: Iterable[Plugin] | None = None) -> None:
        super().__init__(BUILTIN)
        self._given = installed

    @functools.cached_property
    def installed(self) -> tuple[Plugin, ...]:
        """What the installed packages offer, read on first use."""
        return installed_plugins() if self._given is None else tuple(self._given)

    def spec(self, name: str) -> StageSpec:
        """The declaration of a stage; PluginError if an installed plugin has this name and is broken."""
        if name not in self._specs:
            plugin = next((plugin for plugin in self.installed if plugin.name == name), None)
            if plugin is None:
                raise UnknownStage(name, {*self._specs, *(plugin.name for plugin in self.installed)})
            self.add(plugin)
        return self._specs[name]

    def add(self, plugin: Plugin) -> StageSpec:
        """Import a plugin, check it and register its stage; PluginError if anything is wrong with it."""
        from gencli.plugins.loading import load_stage
        from gencli.plugins.validation import check_defaults

        stage = load_stage(plugin)
        check_defaults(stage, plugin.source)
        self._refuse_taken(stage.name, plugin)
        self.register(stage, source=plugin.source)
        return self._specs[stage.name]

    def _refuse_taken(self, name: str, plugin: Plugin) -> None:
        taken = [self._specs[name].source] if name in self._specs else []
        taken += [other.source for other in self.installed if other.name == name and other is not plugin]
        if taken:
            raise PluginError(
                f"Two stages want the name {name!r}: one is {taken[0]}, the other from {plugin.source}.",
                hint=f"Rename one, or leave one out; {SWITCH}=1 leaves out all that are installed.",
            )


def make_registry(plugins: Iterable[str] = ()) -> PluginRegistry:
    """The registry of a run: built-in stages, installed plugins, and those that --plugin names."""
    registry = PluginRegistry()
    for text in plugins:
        registry.add(parse_plugin(text))
    return registry
