"""What is said about plugins before a run."""

from __future__ import annotations

from collections.abc import Iterator

from gencli.plugins.registry import PluginRegistry
from gencli.plugins.values import AdapterParams
from processors.chain import Chain
from processors.registry import Registry

__all__ = ["plugin_notices"]


def plugin_notices(
    chain: Chain, registry: Registry, *, drafter: str = "none", has_rows: bool = False
) -> Iterator[str]:
    """Adapted stages that are on are slow; stages and drafters that were loaded and are not on do nothing.

    Rows of a batch (`has_rows`) may switch a stage on.
    """
    taken = registry.drafters() if isinstance(registry, PluginRegistry) else {}
    for name, source in taken.items():
        if name != drafter:
            yield f"The drafter {name} of {source} is not asked: add --draft {name}."
    active = {name for name, _ in chain.active()}
    for name in registry.names():
        spec = registry.spec(name)
        if registry.is_builtin(name):
            continue
        if name not in active:
            if has_rows:
                continue
            yield f"The stage {name} of {spec.source} is not on: add --stage {name}, with its values."
        elif issubclass(spec.params, AdapterParams):
            yield f"The stage {name} is adapted from {spec.source}: called once for each row, it is slower."
