"""Layers of presets: extended presets first; cycles are errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gencli.config.presets.find import find_preset
from gencli.config.presets.preset import Preset, shown
from gencli.config.presets.read import read_preset
from gencli.config.settings import PRESET, Layer
from gencli.errors import ConfigError
from processors.registry import Registry, builtin_registry

__all__ = ["MAX_FILES", "expand_preset", "load_presets"]

MAX_FILES = 64


def load_presets(
    names: Sequence[str], registry: Registry | None = None, *, origin: str = PRESET
) -> list[Layer]:
    """Return the layers of presets, later ones stronger. Raises ConfigError with the first fault."""
    stacks = [expand_preset(find_preset(name), registry) for name in names]
    for preset in (preset for stack in stacks for preset in stack):
        if messages := preset.messages():
            hint = f"It has {len(messages)} faults; gencli config lint shows all." if messages[1:] else ""
            raise ConfigError(messages[0], hint=hint)
    return [
        preset.layer(origin, is_inherited=preset is not stack[-1]) for stack in stacks for preset in stack
    ]


def expand_preset(path: Path, registry: Registry | None = None) -> list[Preset]:
    """Return the presets that the preset extends, then the preset. An invalid `extends` is a fault."""
    found: list[Preset] = []
    for preset in _expanded(path, (), registry or builtin_registry()):
        found.append(preset)
        if len(found) > MAX_FILES:
            raise ConfigError(
                f"{shown(path)} extends more than {MAX_FILES} files, counted as often as named."
            )
    return found


def _expanded(path: Path, trail: tuple[Path, ...], registry: Registry) -> Iterator[Preset]:
    if len(trail) > MAX_FILES:
        raise ConfigError(f"{shown(trail[0])} extends files more than {MAX_FILES} deep.")
    preset = read_preset(path, registry)
    for name, node in preset.extends:
        try:
            other = find_preset(name, folder=path.parent)
        except ConfigError as error:
            preset.faults.append(node.fault(f"{error.message} {error.hint}".strip()))
            continue
        way = (*trail, path)
        if other in way:
            names = " -> ".join(shown(p) for p in (*way[way.index(other) :], other))
            preset.faults.append(node.fault(f"extends goes in a circle: {names}."))
        else:
            yield from _expanded(other, way, registry)
    yield preset
