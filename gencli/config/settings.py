"""Settings: the values of all options from layers, later ones stronger, with their origins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gencli.config.options.run import OPTIONS, option
from gencli.structured.output_spec import KINDS
from processors.conditions.when import When
from processors.registry import Registry

__all__ = [
    "CHAT_DEFAULT",
    "COMPAT",
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
CHAT_DEFAULT = "default of chat"
COMPAT = "compat"
USER = "user defaults"
PRESET = "preset"
ENVIRONMENT = "environment"
FLAG = "flag"

# A key set by a layer resets these keys of weaker layers; within one layer, setting both is an error.
_REPLACES = {
    "raw": ("chat", "system"),
    "chat": ("raw",),
    "quiet": ("stats",),
    "stats": ("quiet",),
    "offline": ("download",),
    "download": ("offline",),
    "chain": ("temperature_last",),
    "temperature_last": ("chain",),
    "beams": ("best_of", "retries", "contrastive_alpha"),
    "best_of": ("beams", "retries", "contrastive_alpha"),
    "contrastive_alpha": ("beams", "best_of", "retries"),
    "template": ("vars",),  # the variables belong to the template
    "parsed": ("select",),
    "select": ("parsed",),
    **{kind: tuple(other for other in KINDS if other != kind) for kind in KINDS},
}

_BY_NAME = ("vars",)  # pairs by name: a layer replaces only pairs with its own names


@dataclass(frozen=True, slots=True)
class Assigned:
    """A value of a stage's field: its layer, its name in messages, and the rank of the layer.

    `when`: the condition of the stage's entry; each entry has its own values.
    """

    stage: str
    field: str
    value: Any
    origin: str
    said: str
    rank: int = -1
    when: When | None = None

    @property
    def where(self) -> str:
        """The origin and its source, as in `Settings.where`."""
        return where(self.origin, self.said)


def where(origin: str, said: str) -> str:
    """Return an origin and the source in it, which a default of chat does not have."""
    return origin if origin == CHAT_DEFAULT else f"{origin} {said}".strip()


@dataclass(frozen=True, slots=True)
class PresetInfo:
    """The description of a preset, the presets that it extends, and whether it is extended itself."""

    description: str = ""
    extends: tuple[str, ...] = ()
    is_inherited: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """Checked values by option key, and fields of stages, from one source.

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
        """Return the layer of given values. Raises UsageError for a wrong value."""
        places = places or {}
        values = {key: option(key).value(value, places.get(key, "")) for key, value in given.items()}
        return cls(origin, values, places)

    def said(self, key: str) -> str:
        """Return the source of a key's value in messages: its place, or the key in backticks."""
        return self.places.get(key) or f"`{key}`"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, the origin and rank of its layer, and its source in messages."""

    value: Any
    origin: str
    said: str = ""
    rank: int = -1


class Settings(Mapping[str, Any]):
    """The values of all options by key, with their origins."""

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
        """Return the origin of the value's layer."""
        return self._entries[key].origin

    def rank(self, key: str) -> int:
        """Return the index of the value's layer; -1 for a default."""
        return self._entries[key].rank

    def said(self, key: str) -> str:
        """Return the source of the value in messages; "" for a default."""
        return self._entries[key].said

    def where(self, key: str) -> str:
        """Return origin and source, as in "flag `top_p`" or "preset configs/story.yaml:4"."""
        entry = self._entries[key]
        return where(entry.origin, entry.said)

    def name(self, key: str) -> str:
        """Return the option's name in messages: its key in backticks, its variable, or key and line."""
        entry = self._entries[key]
        if entry.origin in (DEFAULT, CHAT_DEFAULT, FLAG, ENVIRONMENT):
            return entry.said or f"`{key}`"
        return key if entry.said == key else f"{key} ({entry.said})"

    def with_value(self, key: str) -> str:
        """Return the option's name and value, as in "`top_k` = 5" or "top_k (story.yaml:4) 5"."""
        return with_value(self.name(key), self[key])

    def notices(self) -> Iterator[str]:
        """Return the notices of all layers."""
        return (text for layer in self.layers for text in layer.notices)

    def is_given(self, key: str) -> bool:
        """Return whether a layer sets the option."""
        return self.origin(key) != DEFAULT


def with_value(name: str, value: object) -> str:
    """Return an option's name in messages and a value: "`top_k` = 5", or "GENCLI_TOP_K 5"."""
    return f"{name} = {value}" if name.startswith("`") else f"{name} {value}"


_DEFAULTS = {entry.key: Setting(entry.default, DEFAULT) for entry in OPTIONS}


def resolve(*layers: Layer | tuple[str, Mapping[str, Any]], registry: Registry | None = None) -> Settings:
    """Return the settings: each option from the last layer that has it, otherwise its default.

    `registry` is the registry that the stages of the layers were read with.
    """
    made = tuple(entry if isinstance(entry, Layer) else Layer.of(*entry) for entry in layers)
    entries = dict(_DEFAULTS)
    for rank, layer in enumerate(made):
        for key, value in layer.values.items():
            for other in _REPLACES.get(key, ()) if value else ():
                if (other, entries[other].origin) != ("chain", COMPAT):  # `chain` moves the temperature
                    entries[other] = _DEFAULTS[other]
        for key, value in layer.values.items():
            if key in _BY_NAME:
                value = tuple({**dict(entries[key].value), **dict(value)}.items())
            entries[key] = Setting(value, layer.origin, layer.said(key), rank)
    return Settings(entries, made, registry)
