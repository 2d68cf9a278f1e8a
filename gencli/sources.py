"""All layers of a run, from the weakest to the strongest: model, presets, environment, flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.environment import environment_layer
from gencli.model_defaults import model_layer
from gencli.settings import FLAG, Layer, Settings, resolve

__all__ = ["gather", "gather_presets"]


def gather(given: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """The settings of a command line. `given` holds the flags, by key."""
    environment, flags = environment_layer(environ), Layer.of(FLAG, given)
    names = flags.values.get("preset", environment.values.get("preset", ()))
    return _with_model((*_presets(names), environment, flags))


def gather_presets(*names: str) -> Settings:
    """The settings of presets alone, whatever the environment says."""
    return _with_model(tuple(_presets(names)))


def _presets(names: tuple[str, ...]) -> list[Layer]:
    if not names:
        return []
    from gencli.presets.stack import load_presets  # YAML is read by those who use it

    return load_presets(names)


def _with_model(layers: tuple[Layer, ...]) -> Settings:
    model = model_layer(resolve(*layers)["model"])
    return resolve(*((model,) if model else ()), *layers)
