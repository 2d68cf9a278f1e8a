"""Loads the models of a server on its own thread: this module has the imports that take seconds."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

from gencli.config.settings import FLAG, Layer, Settings, resolve
from gencli.errors import UsageError
from gencli.models.files.local_models import find_local
from gencli.models.files.model_card import Card, read_card
from gencli.models.model_memory import Held, plan_capacity
from gencli.runtime.grammars import grammar_env, make_compiler
from gencli.runtime.models import Loaded, check_memory
from gencli.runtime.reporter import Reporter
from gencli.runtime.wiring import load_model, model_choice
from gencli.server.models import Models
from gencli.server.plan import Plan
from gencli.server.serving import Serving

__all__ = ["load_models", "planned_batch"]

_FAKE = 64  # texts of the fake model, which needs no memory
_LANES = 2  # lanes of a sample: any request may be guided, and then has two


def load_models(plan: Plan, reporter: Reporter, stack: ExitStack) -> Models:
    """Return the loaded models; `stack` closes their resources.

    Raises ModelError; if the models do not fit into memory together, before any is loaded.
    """
    settings = list(plan.models.values())
    if plan.is_auto:
        batch = Layer.of(FLAG, {"max_batch": planned_batch(settings)})
        settings = [resolve(*each.layers, batch, registry=each.registry) for each in settings]
    if len(settings) > 1:
        check_memory(map(model_choice, settings))
    servings = []
    for name, each in zip(plan.models, settings, strict=True):
        loaded = _loaded(each, reporter)
        compiler = stack.enter_context(closing(make_compiler(grammar_env(loaded), each["grammar_timeout"])))
        servings.append(Serving(each, loaded, compiler, plan.conditions, name=name, notice=reporter.notice))
    return Models.of(*servings)


def _loaded(settings: Settings, reporter: Reporter) -> Loaded:
    """Load a model on a thread that ends with it.

    PyTorch gives each computing thread a team of OpenMP threads. If all teams together have more threads than
    cores, libgomp lets no thread spin, which slows the engine down by up to a half.
    """
    with ThreadPoolExecutor(1, "loader") as thread:
        rows = max(2, settings["max_batch"])
        return thread.submit(lambda: load_model(settings, reporter, companions=True, rows=rows)).result()[0]


def planned_batch(settings: Sequence[Settings]) -> int:
    """Return how many texts of full context length each model can run at once, all models in use.

    Raises UsageError for options with further models or devices, or a model that is not on this machine.
    """
    first = settings[0]
    for key in ("draft", "contrast", "device_map"):
        if first.is_given(key) and first[key] not in (None, "none"):
            raise UsageError(
                f"`max_batch` = auto plans for models on one device, but {first.name(key)} is given.",
                hint="Give `max_batch` a number.",
            )
    cards = [_card(each["model"]) for each in settings if each["model"] != "fake"]
    if not cards:
        return _FAKE
    planned = plan_capacity(
        [Held(card.folder.name if place else "", card, _LANES) for place, card in enumerate(cards)],
        tokens=max(card.context or 1 for card in cards),
        dtype=first["dtype"],
        kv_dtype=first["kv_dtype"],
        device=first["device"],
        quantize=first["quantize"],
    )
    return planned.max_batch


def _card(model: str) -> Card:
    folder = find_local(model)
    if folder is None:
        raise UsageError(f"`max_batch` = auto: {model} is not on this machine.")
    return read_card(folder)
