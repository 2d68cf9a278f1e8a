"""The layers of a run, weakest first: model, user defaults, presets, environment, flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gencli.config.environment import environment_layer
from gencli.config.model_defaults import model_layer
from gencli.config.presets.find import defaults_file
from gencli.config.settings import FLAG, PRESET, USER, Layer, Settings, resolve
from gencli.plugins.registry import make_registry
from processors.registry import Registry

__all__ = ["gather", "gather_layer", "gather_presets", "plugin_texts"]


def gather(given: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Return the settings of a command line; `given` holds its options by key."""
    environment, flags = environment_layer(environ), Layer.of(FLAG, given)
    names, plugins = (flags.values.get(key, environment.values.get(key, ())) for key in ("preset", "plugin"))
    registry = make_registry(plugins)
    layers = (*_user_defaults(registry), *_presets(names, registry), environment, flags)
    return _with_model(layers, registry)


def gather_presets(*names: str, registry: Registry | None = None) -> Settings:
    """Return the settings of presets, without the environment."""
    registry = registry or make_registry()
    return _with_model(tuple(_presets(names, registry)), registry)


def gather_layer(layer: Layer, *presets: str, registry: Registry) -> Settings:
    """Return the settings of a layer above presets and the model's own values, without the environment."""
    return _with_model((*_presets(presets, registry), layer), registry)


def plugin_texts(given: Iterable[str] | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the plug-ins for a command that is no run: those given, otherwise those of GENCLI_PLUGIN."""
    return tuple(given or environment_layer(environ).values.get("plugin", ()))


def _presets(names: tuple[str, ...], registry: Registry, origin: str = PRESET) -> list[Layer]:
    if not names:
        return []
    from gencli.config.presets.stack import load_presets  # PyYAML is imported only if there are presets

    return load_presets(names, registry, origin=origin)


def _user_defaults(registry: Registry) -> list[Layer]:
    path = defaults_file()
    return _presets((str(path),), registry, origin=USER) if path.is_file() else []


def _with_model(layers: tuple[Layer, ...], registry: Registry) -> Settings:
    model = model_layer(resolve(*layers)["model"])
    return resolve(*((model,) if model else ()), *layers, registry=registry)
