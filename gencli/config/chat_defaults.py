"""The defaults of a conversation: the model's chat template, and the draw of the preset `chat`.

A prompt alone is drawn from the model's own distribution. In a conversation small models talk nonsense that
way, so options of the draw without a value take it from the preset `chat` there.
"""

from __future__ import annotations

from gencli.config.options.stages import STAGES
from gencli.config.presets.stack import load_presets
from gencli.config.settings import CHAT_DEFAULT, PRESET, Layer, Settings, resolve
from gencli.models.files.local_models import find_local, is_bundled
from gencli.models.files.model_card import has_template
from processors.catalog.stage_spec import Phase
from processors.registry import Registry

__all__ = ["has_idle_template", "with_chat_draw", "with_template"]

_KEYS = ("temperature", "top_k", "top_p", "min_p")
_OTHER_DRAWS = ("sampler", "chain", "compat", "beams", "contrastive_alpha")


def has_idle_template(settings: Settings) -> bool:
    """Return whether the model brings a chat template and no option says whether to apply it."""
    model = settings["model"]
    if is_bundled(model) or any(settings.is_given(key) for key in ("chat", "raw", "template")):
        return False
    folder = find_local(model)
    return folder is not None and has_template(folder)


def with_template(settings: Settings) -> Settings:
    """Return the settings with `chat` on by default."""
    applied = Layer(CHAT_DEFAULT, {"chat": True})
    return resolve(applied, *settings.layers, registry=settings.registry)


def with_chat_draw(settings: Settings, registry: Registry) -> Settings:
    """Return the settings with the draw of the preset `chat` below all layers.

    A preset with values of its own for the draw, a compat profile and another kind of draw stay as they are.
    """
    is_decided = any(settings.is_given(key) for key in _OTHER_DRAWS)
    if is_decided or any(_sets_draw(layer, registry) for layer in settings.layers):
        return settings
    merged = resolve(*load_presets(("chat",), registry))
    below = Layer(CHAT_DEFAULT, {key: merged[key] for key in _KEYS if merged.is_given(key)})
    return resolve(below, *settings.layers, registry=settings.registry)


def _sets_draw(layer: Layer, registry: Registry) -> bool:
    """Return whether a preset sets a stage that scales or truncates the distribution."""
    if layer.origin != PRESET:
        return False
    names = {entry.stage for entry in layer.stages}
    names |= {entry.stage for entry in STAGES if entry.stage and entry.key in layer.values}
    return any(registry.phase(name) >= Phase.SCALE for name in names)
