"""List all stages, and the plugins that cannot be loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gencli.errors import PluginError
from gencli.plugins.discovery import Plugin, parse_plugin
from gencli.plugins.registry import PluginRegistry
from processors.catalog import Phase
from processors.registry import Registry

__all__ = ["Listed", "list_stages", "sentence"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A stage, or a plugin that failed to load with `error` (then `phase` is None)."""

    name: str
    source: str
    phase: Phase | None = None
    sentence: str = ""
    error: str = ""


def list_stages(plugins: Iterable[str] = (), registry: PluginRegistry | None = None) -> tuple[Listed, ...]:
    """Return the stages in default order, then the broken plugins."""
    registry = registry or PluginRegistry()
    broken = []
    for plugin in (*registry.installed, *map(parse_plugin, plugins)):
        try:
            registry.add(plugin)
        except PluginError as error:
            name = plugin.name or plugin.attribute or _stem(plugin)
            broken.append(Listed(name, plugin.source, error=error.message))
    return (*(_listed(registry, name) for name in registry.names()), *broken)


def sentence(registry: Registry, name: str) -> str:
    """Return a stage's description: the first docstring line of its Params, or of its class."""
    spec = registry.spec(name)
    line = _first_line(spec.params.__doc__)
    if not line or line.startswith(f"{spec.params.__name__}("):  # the signature that @dataclass writes
        line = "" if registry.is_builtin(name) else _first_line(registry.load(name).__doc__)
    return line


def _listed(registry: Registry, name: str) -> Listed:
    spec = registry.spec(name)
    return Listed(name, spec.source, spec.phase, sentence(registry, name))


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _stem(plugin: Plugin) -> str:
    return plugin.path.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
