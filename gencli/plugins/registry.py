"""The registry of a run: the built-in stages with the plugins beside them.

No plugin is imported before a run names its stage; a broken one is an error only then.
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
    from gencli.speculative.base import Drafter
    from processors.base import Processor

__all__ = ["PluginRegistry", "make_registry"]

_RENAMED = {"passes": "is_autoregressive", "passes_for": "is_autoregressive_for"}  # of drafters


class PluginRegistry(Registry):
    """The built-in stages, and plugins: an installed one joins when it is first asked for."""

    def __init__(self, installed: Iterable[Plugin] | None = None) -> None:
        super().__init__(BUILTIN)
        self._given = installed
        self._drafters: dict[str, tuple[str, type[Drafter]]] = {}  # by name: where from, and the class

    @functools.cached_property
    def installed(self) -> tuple[Plugin, ...]:
        """What the installed packages offer, read on first use."""
        return installed_plugins() if self._given is None else tuple(self._given)

    def spec(self, name: str) -> StageSpec:
        """Return the declaration of a stage; PluginError if an installed plugin has this name and is broken."""
        if name not in self._specs:
            plugin = next((plugin for plugin in self.installed if plugin.name == name), None)
            if plugin is None:
                raise UnknownStage(name, {*self._specs, *(plugin.name for plugin in self.installed)})
            self.add(plugin)
        return self._specs[name]

    def add(self, plugin: Plugin) -> StageSpec:
        """Import a plugin, check it and register its stage; PluginError if anything is wrong with it."""
        from gencli.plugins.loading import load_stage

        return self._register(load_stage(plugin), plugin)

    def take(self, plugin: Plugin) -> None:
        """As `add`; the plugin may be a drafter as well."""
        from gencli.plugins.loading import load_plugin
        from gencli.speculative.base import Drafter

        found = load_plugin(plugin)
        if not issubclass(found, Drafter):
            self._register(found, plugin)
            return
        for old, new in _RENAMED.items():
            if hasattr(found, old):
                raise PluginError(
                    f"The drafter {found.name} in {plugin.source} has {old}, which is now {new}.",
                    hint=f"Rename it: def {new}" if old.endswith("for") else f"Rename it: {new} = True",
                )
        if found.name in self._drafters:
            self._refuse_two("drafters", found.name, self._drafters[found.name][0], plugin.source)
        self._drafters[found.name] = (plugin.source, found)

    def drafter(self, name: str) -> type[Drafter] | None:
        """Return a drafter that a plugin brought, or an installed package has; None if there is none."""
        for plugin in installed_plugins(DRAFTERS) if self._given is None else ():
            if plugin.name == name:
                self.take(plugin)
        return self._drafters[name][1] if name in self._drafters else None

    def drafters(self) -> dict[str, str]:
        """Return the drafters that were taken, and where each is from."""
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

    def _refuse_two(self, kind: str, name: str, one: str, other: str) -> NoReturn:
        raise PluginError(
            f"Two {kind} want the name {name!r}: one is {one}, the other from {other}.",
            hint=f"Rename one, or leave one out; {SWITCH}=1 leaves out all that are installed.",
        )


def make_registry(plugins: Iterable[str] = ()) -> PluginRegistry:
    """Return the registry of a run: built-in stages, installed plugins, and those that --plugin names."""
    registry = PluginRegistry()
    for text in plugins:
        registry.take(parse_plugin(text))
    return registry
