"""Where values come from: layers of mappings, the later ones stronger, and the origin of each value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gencli.options import OPTIONS, option

__all__ = ["DEFAULT", "FLAG", "Layer", "Setting", "Settings", "resolve"]

DEFAULT = "default"
FLAG = "flag"

Layer = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and the layer it came from."""

    value: Any
    origin: str


class Settings(Mapping[str, Any]):
    """The value of every option by key; `origin` says where it came from."""

    def __init__(self, entries: Mapping[str, Setting]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, key: str) -> Any:
        return self._entries[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def origin(self, key: str) -> str:
        """The layer that the value came from."""
        return self._entries[key].origin

    def is_given(self, key: str) -> bool:
        """Whether anything but the defaults set the option."""
        return self.origin(key) != DEFAULT


def resolve(*layers: Layer) -> Settings:
    """Every option's checked value: from the last layer that has it, or its default."""
    entries = {entry.key: Setting(entry.default, DEFAULT) for entry in OPTIONS}
    for origin, values in layers:
        for key, value in values.items():
            entries[key] = Setting(option(key).value(value), origin)
    return Settings(entries)
