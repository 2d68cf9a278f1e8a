"""Make the engine of a run from a loaded model and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.config.settings import Settings
from gencli.engine.engine import Engine
from gencli.models.base import ModelRunner
from gencli.models.spread import Spread
from gencli.runtime.contrast import load_amateurs
from gencli.runtime.drafters import make_drafter
from gencli.runtime.models import Loaded, ModelChoice
from gencli.speculative.base import Drafter
from gencli.text.tokenizer import Tokenizer
from processors.base import Compiler
from processors.registry import Registry

__all__ = ["bare_engine", "make_engine", "model_choice"]


def model_choice(settings: Settings) -> ModelChoice:
    """Return the model and its load options from the settings."""
    return ModelChoice(
        name=settings["model"],
        dtype=settings["dtype"],
        device=settings["device"],
        max_batch=settings["max_batch"],
        trust_remote_code=settings["trust_remote_code"],
        spread=Spread(settings["device_map"], settings["tp"]),
    )


def make_engine(
    loaded: Loaded,
    settings: Settings,
    grammars: Compiler,
    *,
    registry: Registry | None,
    max_batch: int | None = None,
    drafter: Drafter | None = None,
    amateurs: Mapping[str, ModelRunner] | None = None,
) -> Engine:
    """Return an engine on the model; `max_batch` overrides that of the settings.

    Drafter and contrast models are loaded as the settings say, unless given. Raises ModelError for a model
    that cannot draft for the loaded one, or be contrasted with it.
    """
    choice = model_choice(settings)
    if drafter is None:
        drafter = make_drafter(settings["draft"], loaded, choice, registry=registry)
    if amateurs is None:
        amateurs = load_amateurs(settings["contrast"], loaded, choice)
    return Engine(
        loaded.runner,
        loaded.tokenizer,
        max_batch=settings["max_batch"] if max_batch is None else max_batch,
        registry=registry,
        drafter=drafter,
        grammars=grammars,
        amateurs=amateurs,
    )


def bare_engine(runner: ModelRunner, tokenizer: Tokenizer, **options: Any) -> Engine:
    """Return an engine on a runner for a measurement, without settings. `options` are those of Engine."""
    return Engine(runner, tokenizer, **options)
