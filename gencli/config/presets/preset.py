"""The content of a preset file, with all its faults."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gencli.config.presets.find import is_path, shipped_presets
from gencli.config.settings import PRESET, Assigned, Layer, PresetInfo
from gencli.yaml_text import YamlFault, YamlNode

__all__ = ["Preset", "shown"]


@dataclass(slots=True)
class Preset:
    """The content of a preset file; usable only without faults."""

    path: Path
    description: str = ""
    extends: list[tuple[str, YamlNode]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    stages: list[Assigned] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[YamlFault] = field(default_factory=list)

    def layer(self, origin: str = PRESET, *, is_inherited: bool = False) -> Layer:
        """Return the values as a layer of settings; `is_inherited`: whether another preset extends this one.

        Only a layer of origin `preset` has a PresetInfo, because an exported preset never refers to other
        files.
        """
        here = self.path.parent
        extends = tuple(os.path.abspath(here / name) if is_path(name) else name for name, _ in self.extends)
        info = PresetInfo(self.description, extends, is_inherited)
        stages = tuple(replace(assigned, origin=origin) for assigned in self.stages)
        notices = tuple(f"{origin.capitalize()} {self.path.stem}: {note}" for note in self.notes)
        own = info if origin == PRESET else None
        return Layer(origin, self.values, self.places, stages, notices, preset=own)

    def messages(self) -> list[str]:
        """Return the faults ordered by line, each with file, line and column."""
        found = sorted(self.faults, key=lambda fault: (fault.line, fault.column))
        return [f"{shown(self.path)}:{fault.line}:{fault.column}: {fault.text}" for fault in found]


def shown(path: Path) -> str:
    """Return the path, relative to the current folder if it is below it; the name of a preset that ships."""
    if path.resolve().is_relative_to(shipped_presets().resolve()):
        return path.stem
    here = Path.cwd()
    return os.fspath(path.relative_to(here) if path.is_relative_to(here) else path)
