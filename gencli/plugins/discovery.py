"""Where plugins are found, and the registry that has them beside the built-in stages.

Nothing of a plugin is imported before a run names its stage; a broken one is an error only then.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points

from gencli.errors import PluginError, UsageError
from processors.catalog import BUILTIN, StageSpec
from processors.errors import UnknownStage
from processors.registry import Registry

__all__ = [
    "GROUP",
    "SWITCH",
    "Plugin",
    "PluginRegistry",
    "installed_plugins",
    "make_registry",
    "parse_plugin",
]

GROUP = "gencli.processors"
SWITCH = "GENCLI_NO_PLUGINS"


@dataclass(frozen=True, slots=True)
class Plugin:
    """Where a stage is to be found: a file or a module, and a name in it.

    `source` is what people are told: the package and its version, or what was typed. `name` is the
    entry point's, which is the stage's as well.
    """

    source: str
    path: str = ""
    module: str = ""
    attribute: str = ""
    name: str = ""


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
        if plugin.name:
            self._refuse_taken(plugin.name, plugin)
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


def installed_plugins() -> tuple[Plugin, ...]:
    """The entry points of the installed packages, not yet imported; none if GENCLI_NO_PLUGINS is set."""
    if os.environ.get(SWITCH, "0") not in ("", "0"):
        return ()
    return tuple(
        Plugin(
            source=f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value,
            module=entry.module,
            attribute=entry.attr,
            name=entry.name,
        )
        for entry in entry_points(group=GROUP)
    )


def parse_plugin(text: str) -> Plugin:
    """From path.py, path.py:name or module:name."""
    if text.endswith(".py"):
        return Plugin(text, path=text)
    head, _, attribute = text.rpartition(":")
    if not head or not attribute.isidentifier():
        raise UsageError(
            f"--plugin {text!r} is not of the form path.py, path.py:Class or module:Class.",
            hint="A module needs the name of the class in it.",
        )
    if head.endswith(".py"):
        return Plugin(text, path=head, attribute=attribute)
    return Plugin(text, module=head, attribute=attribute)
