"""What is said about plugins before a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gencli.plugins.registry import PluginRegistry
from gencli.plugins.values import AdapterParams
from processors.registry import Registry

__all__ = ["plugin_notices"]


def plugin_notices(
    active: Collection[str], registry: Registry, *, drafters: Collection[str] = ()
) -> Iterator[str]:
    """Adapted stages that are on are slow; stages and drafters that were loaded and are not on do nothing.

    `active` are the stages that are on in the run or in any row of it, `drafters` those that are asked.
    """
    taken = registry.drafters() if isinstance(registry, PluginRegistry) else {}
    for name, source in taken.items():
        if name not in drafters:
            yield f"The drafter {name} of {source} is not asked: add --draft {name}."
    for name in registry.names():
        spec = registry.spec(name)
        if registry.is_builtin(name):
            continue
        if name not in active:
            yield f"The stage {name} of {spec.source} is not on: add --stage {name}, with its values."
        elif issubclass(spec.params, AdapterParams):
            yield f"The stage {name} is adapted from {spec.source}: called once for each row, it is slower."
