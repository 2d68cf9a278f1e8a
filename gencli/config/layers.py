"""The layers of a run, weakest first: model, compat profile, user defaults, presets, environment, flags.

A conversation has its defaults below all of them.
The model's own values override the profile of a system that reads generation_config.json itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from gencli.config.chat_defaults import has_idle_template, with_chat_draw, with_template
from gencli.config.environment import environment_layer
from gencli.config.model_defaults import model_layer
from gencli.config.options.compat import READS_MODEL
from gencli.config.presets.find import defaults_file, profile_file
from gencli.config.settings import COMPAT, FLAG, PRESET, USER, Layer, Settings, resolve
from gencli.plugins.plugin_registry import make_registry
from processors.registry import Registry

__all__ = ["gather", "gather_layer", "gather_presets", "plugin_texts", "profile_layers"]


def gather(
    given: Mapping[str, Any],
    environ: Mapping[str, str],
    registry: Registry | None = None,
    *,
    applies_template: bool = False,
    is_neutral: bool = False,
) -> Settings:
    """Return the settings of a command line; `given` holds its options by key.

    `registry`: registry with the plug-ins, if the caller has one already. `applies_template`: the model's
    chat template applies unless an option says otherwise. `is_neutral`: a conversation is drawn as any text.
    """
    environment, flags = environment_layer(environ), Layer.of(FLAG, given)
    names, plugins = (flags.values.get(key, environment.values.get(key, ())) for key in ("preset", "plugin"))
    registry = make_registry(plugins) if registry is None else registry
    layers = (*_user_defaults(registry), *_presets(names, registry), environment, flags)
    settings = _with_base(layers, registry)
    if applies_template and has_idle_template(settings):
        settings = with_template(settings)
    return with_chat_draw(settings, registry) if settings["chat"] and not is_neutral else settings


def gather_presets(*names: str, registry: Registry | None = None) -> Settings:
    """Return the settings of presets, without the environment."""
    registry = registry or make_registry()
    return _with_base(tuple(_presets(names, registry)), registry)


def gather_layer(layer: Layer, *presets: str, registry: Registry) -> Settings:
    """Return the settings of a layer above presets and the model's own values, without the environment."""
    return _with_base((*_presets(presets, registry), layer), registry)


def plugin_texts(given: Iterable[str] | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the plug-ins for a command other than a run: those given, or else of GENCLI_PLUGIN."""
    return tuple(given or environment_layer(environ).values.get("plugin", ()))


def _presets(names: tuple[str, ...], registry: Registry, origin: str = PRESET) -> list[Layer]:
    if not names:
        return []
    from gencli.config.presets.stack import load_presets  # PyYAML is imported only for presets

    return load_presets(names, registry, origin=origin)


def _user_defaults(registry: Registry) -> list[Layer]:
    path = defaults_file()
    return _presets((str(path),), registry, origin=USER) if os.path.lexists(path) else []


def profile_layers(name: str | None, registry: Registry) -> list[Layer]:
    """Return the layers of a compat profile; [] without a name."""
    return _presets((str(profile_file(name)),), registry, origin=COMPAT) if name else []


def _with_base(layers: tuple[Layer, ...], registry: Registry) -> Settings:
    """Return the settings of the layers above the model's own values and the compat profile."""
    found = resolve(*layers)
    model, profile = model_layer(found["model"]), profile_layers(found["compat"], registry)
    own = [model] if model else []
    base = [*profile, *own] if found["compat"] in READS_MODEL else [*own, *profile]
    return resolve(*base, *layers, registry=registry)
