"""Where values come from: layers, the later ones stronger, and the origin of each value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gencli.config.options.run import OPTIONS, option
from gencli.structured.output_spec import KINDS
from processors.registry import Registry

__all__ = [
    "DEFAULT",
    "ENVIRONMENT",
    "FLAG",
    "PRESET",
    "USER",
    "Assigned",
    "Layer",
    "PresetInfo",
    "Setting",
    "Settings",
    "resolve",
    "with_value",
]

DEFAULT = "default"
USER = "user defaults"
PRESET = "preset"
ENVIRONMENT = "environment"
FLAG = "flag"

# What is switched on in one layer replaces its contrary in the weaker ones; in one layer both are refused.
_REPLACES = {
    "raw": ("chat", "system"),
    "chat": ("raw",),
    "quiet": ("stats",),
    "stats": ("quiet",),
    "offline": ("download",),
    "download": ("offline",),
    "chain": ("temperature_last",),
    "temperature_last": ("chain",),
    "beams": ("best_of", "retries"),
    "best_of": ("beams", "retries"),
    "template": ("vars",),  # which are those of a template
    "parsed": ("select",),
    "select": ("parsed",),
    **{kind: tuple(other for other in KINDS if other != kind) for kind in KINDS},
}

_BY_NAME = ("vars",)  # pairs of which a layer replaces those that it names


@dataclass(frozen=True, slots=True)
class Assigned:
    """A stage's field that was given a value: by which layer, in which words, and that layer's rank."""

    stage: str
    field: str
    value: Any
    origin: str
    said: str
    rank: int = -1


@dataclass(frozen=True, slots=True)
class PresetInfo:
    """A preset's description, the presets that it extends, and whether another one extends it."""

    description: str = ""
    extends: tuple[str, ...] = ()
    is_inherited: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """Checked values by option key, and fields of stages, that came from one place.

    `places` maps keys to their sources, a variable or the line of a file; a key without one was a flag or a
    keyword. `preset` is set for the values of a preset.
    """

    origin: str
    values: Mapping[str, Any]
    places: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[Assigned, ...] = ()
    notices: tuple[str, ...] = ()
    preset: PresetInfo | None = None

    @classmethod
    def of(cls, origin: str, given: Mapping[str, Any], places: Mapping[str, str] | None = None) -> Layer:
        """A layer of what was typed. Raises UsageError for a value that an option does not take."""
        places = places or {}
        values = {key: option(key).value(value, places.get(key, "")) for key, value in given.items()}
        return cls(origin, values, places)

    def said(self, key: str) -> str:
        """The words in which a key was given its value here."""
        return self.places.get(key) or f"`{key}`"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, the layer it came from, the words it was said in, and the layer's rank."""

    value: Any
    origin: str
    said: str = ""
    rank: int = -1


class Settings(Mapping[str, Any]):
    """The value of every option by key; `origin` says where it came from."""

    def __init__(
        self,
        entries: Mapping[str, Setting],
        layers: tuple[Layer, ...] = (),
        registry: Registry | None = None,
    ) -> None:
        self._entries = dict(entries)
        self.layers = layers
        self.registry = registry

    def __getitem__(self, key: str) -> Any:
        return self._entries[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def origin(self, key: str) -> str:
        """The layer that the value came from."""
        return self._entries[key].origin

    def rank(self, key: str) -> int:
        """The place of that layer among the layers; -1 for a default."""
        return self._entries[key].rank

    def said(self, key: str) -> str:
        """The words in which the option was given its value."""
        return self._entries[key].said

    def where(self, key: str) -> str:
        """The layer and its words, as in "flag `top_p`" or "preset configs/story.yaml:4"."""
        entry = self._entries[key]
        return f"{entry.origin} {entry.said}".strip()

    def name(self, key: str) -> str:
        """The option in messages: its key in backticks, its variable, or its key and the line of a file."""
        entry = self._entries[key]
        if entry.origin in (DEFAULT, FLAG, ENVIRONMENT):
            return entry.said or f"`{key}`"
        return key if entry.said == key else f"{key} ({entry.said})"

    def with_value(self, key: str) -> str:
        """Return the option's name and value, as in "`top_k` = 5" or "top_k (story.yaml:4) 5"."""
        return with_value(self.name(key), self[key])

    def notices(self) -> Iterator[str]:
        """What the layers could not take over."""
        return (text for layer in self.layers for text in layer.notices)

    def is_given(self, key: str) -> bool:
        """Whether anything but the defaults set the option."""
        return self.origin(key) != DEFAULT


def with_value(name: str, value: object) -> str:
    """Return an option's name in messages and a value: "`top_k` = 5", or "GENCLI_TOP_K 5"."""
    return f"{name} = {value}" if name.startswith("`") else f"{name} {value}"


def resolve(*layers: Layer | tuple[str, Mapping[str, Any]], registry: Registry | None = None) -> Settings:
    """Every option's checked value: from the last layer that has it, or its default.

    `registry` is the one that the layers' stages were read with.
    """
    made = tuple(entry if isinstance(entry, Layer) else Layer.of(*entry) for entry in layers)
    defaults = {entry.key: Setting(entry.default, DEFAULT) for entry in OPTIONS}
    entries = dict(defaults)
    for rank, layer in enumerate(made):
        for key, value in layer.values.items():
            for other in _REPLACES.get(key, ()) if value else ():
                entries[other] = defaults[other]
        for key, value in layer.values.items():
            if key in _BY_NAME:
                value = tuple({**dict(entries[key].value), **dict(value)}.items())
            entries[key] = Setting(value, layer.origin, layer.said(key), rank)
    return Settings(entries, made, registry)
