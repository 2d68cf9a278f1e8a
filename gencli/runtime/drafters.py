"""Makes the drafters of a run by name."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from gencli.config.options.drafts import EARLY_EXIT, NO_DRAFTER
from gencli.errors import ModelError, UsageError
from gencli.models.backend import ONE_DEVICE
from gencli.models.files.model_card import first_difference
from gencli.models.model_runner import ModelRunner
from gencli.models.other_runners import run_on_side_stream
from gencli.plugins.registry import PluginRegistry
from gencli.runtime.models import Loaded, ModelChoice, load
from gencli.speculative.adaptive_drafts import AdaptiveDrafter, Clock, TailFirstDrafter, work_clock
from gencli.speculative.combined_drafters import AutoDrafter, FallbackDrafter, ForeignDrafter
from gencli.speculative.draft_model import ModelDrafter, TextModelDrafter
from gencli.speculative.drafter import Drafter, NgramDrafter, SuffixDrafter
from gencli.speculative.translation import Translation
from processors.conversion import whole
from processors.registry import Registry

__all__ = ["bare_drafter", "make_drafter", "model_drafter"]

_BUILT_IN: dict[str, Callable[[], Drafter]] = {
    "ngram": NgramDrafter,
    "suffix": SuffixDrafter,
    "auto": lambda: AutoDrafter([SuffixDrafter(), NgramDrafter()]),
}


def make_drafter(
    name: str,
    target: Loaded,
    choice: ModelChoice,
    *,
    registry: Registry | None = None,
    clock: Clock | None = None,
) -> Drafter:
    """Return a drafter that combines the built-in drafters, which cost nothing until used, and the named one.

    `name` is a built-in drafter, a drafter plugin of the registry, or a model. A draft model is loaded with
    the load options of the target, `choice`. Raises ModelError for a model that cannot draft for the target.
    """
    work = clock or work_clock(target.runner.spec.device)
    made = [AdaptiveDrafter(make(), name=key, clock=work) for key, make in _BUILT_IN.items()]
    if name not in _BUILT_IN and name != NO_DRAFTER:
        drafter, on = bare_drafter(name, target, choice, registry=registry), clock or time.perf_counter
        # Plugins are timed by wall clock, because they may wait for another process.
        if isinstance(drafter, ModelDrafter | TextModelDrafter):
            drafter, on = TailFirstDrafter(drafter), work
        made.append(AdaptiveDrafter(drafter, name=name, clock=on))
    return FallbackDrafter(made)


def bare_drafter(
    name: str, target: Loaded, choice: ModelChoice, *, registry: Registry | None = None
) -> Drafter:
    """Return the named drafter, without adaptive draft lengths."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    plugin = registry.drafter(name) if isinstance(registry, PluginRegistry) else None
    return ForeignDrafter(plugin) if plugin else model_drafter(name, target, choice)


def model_drafter(name: str, target: Loaded, choice: ModelChoice) -> Drafter:
    """Return a drafter with a draft model, or with the target's first layers (early-exit, early-exit:N).

    Raises UsageError for unsuitable options, ModelError for a model that cannot draft.
    """
    if name.partition(":")[0] == EARLY_EXIT:
        if choice.spread.is_on:
            raise UsageError(f"`draft` = {name} does not go together with `tp` or `device_map`.")
        return ModelDrafter(_first_layers(name, target, choice.max_batch))
    # With `tp` only the first process has an engine and thus a draft model.
    draft = load(replace(choice, name=name, spread=ONE_DEVICE))
    if not draft.runner.spec.can_rollback:
        raise ModelError(
            f"{name} cannot draft: its layers keep a running state, so it cannot forget what is rejected.",
            hint="Draft with ngram, suffix or an attention model.",
        )
    runner = run_on_side_stream(draft.runner)
    found = first_difference(target.tokenizer, draft.tokenizer)
    if found is None:
        return ModelDrafter(runner)
    token, here, there = found
    return TextModelDrafter(
        runner,
        Translation(
            target.tokenizer, draft.tokenizer, ends=draft.runner.spec.eos_ids, names=(choice.name, name)
        ),
        f"{name} has another vocabulary than {choice.name}, and drafts through text: token {token} is "
        f"{there!r} to {name} and {here!r} to {choice.name}.",
    )


def _first_layers(name: str, target: Loaded, max_lanes: int) -> ModelRunner:
    from gencli.models.model_runner import LaneRunner

    text = name.partition(":")[2]
    count = whole(text)
    if text and count is None:
        raise UsageError(f"`draft` = {name[:60]}: {text[:60]!r} is no number of layers.")
    if not isinstance(target.runner, LaneRunner):
        raise UsageError(f"`draft` = {name}: the model {target.runner.spec.name} has no layers.")
    return target.runner.first_layers(count, max_lanes=max_lanes)
