"""Notices about plug-ins before a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gencli.plugins.registry import PluginRegistry
from gencli.plugins.values import AdapterParams
from processors.registry import Registry

__all__ = ["adapter_notices", "plugin_notices"]


def plugin_notices(
    active: Collection[str], registry: Registry, *, drafters: Collection[str] = ()
) -> Iterator[str]:
    """Yield a notice for each loaded stage or drafter that is not used, and for each slow stage.

    `active`: stages that are on in the run or in any of its rows. `drafters`: drafters in use.
    """
    loaded = registry.drafters() if isinstance(registry, PluginRegistry) else {}
    for name, source in loaded.items():
        if name not in drafters:
            yield f"The drafter {name} of {source} is not used: add `draft` = {name}."
    for name in registry.names():
        if name not in active and not registry.is_builtin(name):
            source = registry.spec(name).source
            yield f"The stage {name} of {source} is not on: add `stage` = {name}, with its values."
    yield from adapter_notices(active, registry)


def adapter_notices(active: Collection[str], registry: Registry) -> Iterator[str]:
    """Yield a notice for each active stage that adapts a per-row callable."""
    for name in registry.names():
        spec = registry.spec(name)
        if name in active and issubclass(spec.params, AdapterParams):
            yield f"The stage {name} is adapted from {spec.source}: called once for each row, it is slow."
