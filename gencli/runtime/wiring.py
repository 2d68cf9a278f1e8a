"""Loads the model of a run with its drafters and contrast models, and makes its engine, from the settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import torch

from gencli.config.run_options import NO_AMATEUR
from gencli.config.settings import Settings
from gencli.core.request import EARLY_EXIT, MTP, NO_DRAFTER
from gencli.engine.engine import Engine
from gencli.engine.scheduler import WINDOW, step_limit
from gencli.errors import ModelError, UsageError
from gencli.models.backend import ONE_DEVICE, Spread
from gencli.models.files.checkpoint import ModelIdentity, identify_model
from gencli.models.files.local_models import find_local
from gencli.models.model_runner import HeadedRunner, ModelRunner, ModelSpec
from gencli.models.other_runners import run_on_side_stream
from gencli.plugins.plugin_registry import PluginRegistry
from gencli.runtime.model_loading import Loaded, ModelChoice, Reporter, batch_notices, load, model_notices
from gencli.speculative.adaptive_drafts import AdaptiveDrafter, Clock, TailFirstDrafter, work_clock
from gencli.speculative.combined_drafters import AutoDrafter, FallbackDrafter, ForeignDrafter
from gencli.speculative.draft_model import ModelDrafter, TextModelDrafter
from gencli.speculative.drafter import Drafter, NgramDrafter, SuffixDrafter
from gencli.speculative.head_drafter import HeadDrafter
from gencli.speculative.head_files import is_head, open_head, open_mtp
from gencli.speculative.head_models import Head, read_head
from gencli.speculative.translation import Translation
from gencli.text.tokenizer import OnTokenizer, Tokenizer, first_difference, no_template
from processors.base import Compiler
from processors.params import whole
from processors.registry import Registry


def model_choice(settings: Settings) -> ModelChoice:
    """Return the model and its load options from the settings."""
    return ModelChoice(
        name=settings["model"],
        dtype=settings["dtype"],
        device=settings["device"],
        max_batch=settings["max_batch"],
        trust_remote_code=settings["trust_remote_code"],
        spread=Spread(settings["device_map"], settings["tp"]),
        backend=settings["backend"],
        quantize=settings["quantize"],
        kernel=settings["kernel"],
        invariant=settings["invariant"],
        cuda_graphs=settings["cuda_graphs"],
        kv_dtype=settings["kv_dtype"],
        memory_check=settings["memory_check"] == "on",
    )


def load_model(
    settings: Settings,
    reporter: Reporter,
    *,
    companions: bool,
    rows: int,
    is_chat: bool = False,
    on_tokenizer: OnTokenizer | None = None,
) -> tuple[Loaded, float]:
    """Load the model of a run; return it and the seconds of loading.

    `companions`: samples may need a second KV lane. `rows`: sequences and draft tokens computed at once; a
    notice is reported if other rows may change a text. `on_tokenizer` is called before the weights are read.
    Raises ModelError if `is_chat` and the model has no chat template.
    """

    def begin(tokenizer: Tokenizer, vocab_size: int, eos_ids: tuple[int, ...]) -> None:
        if is_chat and not tokenizer.has_chat_template:
            raise no_template(tokenizer.name)
        if on_tokenizer is not None:
            on_tokenizer(tokenizer, vocab_size, eos_ids)

    if settings["threads"] is not None:
        torch.set_num_threads(settings["threads"])
    choice = replace(model_choice(settings), companions=companions, rows=rows)
    start = time.monotonic()
    with reporter.loading(choice.name) as on_bytes:
        loaded = load(choice, on_bytes=on_bytes, on_tokenizer=begin)
    for notice in (*model_notices(loaded), *(batch_notices(loaded) if rows > 1 else ())):
        reporter.notice(notice)
    return loaded, time.monotonic() - start


def model_identity(settings: Settings, reporter: Reporter) -> ModelIdentity | None:
    """Return the revision and the hash of the model; None for `fake`."""
    with reporter.loading(settings["model"], "Hashing") as on_bytes:
        return identify_model(settings["model"], on_bytes)


def make_engine(
    loaded: Loaded,
    settings: Settings,
    grammars: Compiler,
    *,
    registry: Registry | None,
    max_batch: int | None = None,
    drafter: Drafter | None = None,
    amateurs: Mapping[str, ModelRunner] | None = None,
    window: int = WINDOW,
) -> Engine:
    """Return an engine on the model; `max_batch` overrides the settings. `window`: as in Engine.

    Drafter and contrast models are loaded from the settings unless given. Raises ModelError for a model that
    cannot draft for the loaded one, or be contrasted with it.
    """
    batch = settings["max_batch"] if max_batch is None else max_batch
    choice = replace(model_choice(settings), max_batch=batch)
    if drafter is None:
        drafter = make_drafter(settings["draft"], loaded, choice, registry=registry)
    if amateurs is None:
        amateurs = load_amateurs(settings["contrast"], loaded, choice)
    spec, step_tokens = loaded.runner.spec, step_limit(None, batch)
    if spec.device.type == "cuda":  # the temporary memory of a step has to fit next to the weights
        from gencli.models.device import free_memory
        from gencli.models.model_memory import plan_chunk

        step_tokens = plan_chunk(spec, free_memory(spec.device), rows=batch, limit=step_tokens)
    return Engine(
        loaded.runner,
        loaded.tokenizer,
        max_batch=batch,
        step_tokens=step_tokens,
        registry=registry,
        drafter=drafter,
        grammars=grammars,
        amateurs=amateurs,
        window=window,
        run_ahead=_run_ahead(settings, spec),
    )


def _run_ahead(settings: Settings, spec: ModelSpec) -> bool | None:
    """Return the setting of run-ahead. Raises UsageError if it is on and the model is not on a GPU."""
    wanted: bool | None = settings["async_steps"]
    if wanted and spec.device.type != "cuda":
        raise UsageError(
            f"`async_steps` is on, but {spec.name} runs on {spec.device}, which works while the host waits.",
            hint="Leave `async_steps` out, or give `device` = cuda.",
        )
    return wanted


def bare_engine(runner: ModelRunner, tokenizer: Tokenizer, **options: Any) -> Engine:
    """Return an engine on a runner for a measurement, without settings. `options`: keywords of Engine."""
    return Engine(runner, tokenizer, **options)


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
    drafters = [AdaptiveDrafter(make(), name=key, clock=work) for key, make in _BUILT_IN.items()]
    if name not in _BUILT_IN and name != NO_DRAFTER:
        drafter, on = bare_drafter(name, target, choice, registry=registry), clock or time.perf_counter
        # Plugins are timed by wall clock, because they may wait for another process.
        if isinstance(drafter, ModelDrafter):
            drafter, on = TailFirstDrafter(drafter), work
        drafters.append(AdaptiveDrafter(drafter, name=name, clock=on))
    return FallbackDrafter(drafters)


def bare_drafter(
    name: str, target: Loaded, choice: ModelChoice, *, registry: Registry | None = None
) -> Drafter:
    """Return the named drafter, without adaptive draft lengths."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    plugin = registry.drafter(name) if isinstance(registry, PluginRegistry) else None
    return ForeignDrafter(plugin) if plugin else model_drafter(name, target, choice)


def model_drafter(name: str, target: Loaded, choice: ModelChoice) -> Drafter:
    """Return a drafter with a draft model, the target's first layers (early-exit, early-exit:N), or a trained
    head: a folder, or the target's own layers for multi-token prediction (mtp).

    Raises UsageError for unsuitable options, ModelError for a model that cannot draft.
    """
    kind, _, number = name.partition(":")
    if name == MTP or (find_local(name) is not None and is_head(name)):
        head, _, notices = read_draft_head(name, target, choice)
        return HeadDrafter(head, target.runner.spec, max_lanes=choice.max_batch, notices=notices)
    if kind == EARLY_EXIT:
        from gencli.models.kv.lane_buffers import LaneRunner

        if choice.spread.is_on:
            raise UsageError(f"`draft` = {name} does not go together with `tp` or `device_map`.")
        if (count := whole(number)) is None and number:
            raise UsageError(f"`draft` = {name[:60]}: {number[:60]!r} is no number of layers.")
        if not isinstance(target.runner, LaneRunner):
            raise UsageError(f"`draft` = {name}: the model {target.runner.spec.name} has no layers.")
        return ModelDrafter(target.runner.first_layers(count, max_lanes=choice.max_batch))
    # With `tp` only the first process has an engine and thus a draft model.
    draft = load(replace(choice, name=name, spread=ONE_DEVICE))
    if not draft.runner.spec.can_rollback:
        raise ModelError(
            f"{name} cannot draft: its layers keep a running state, so it cannot forget what is rejected.",
            hint="Draft with ngram, suffix or an attention model.",
        )
    runner = run_on_side_stream(draft.runner)
    difference = first_difference(target.tokenizer, draft.tokenizer)
    if difference is None:
        return ModelDrafter(runner)
    token, here, there = difference
    return TextModelDrafter(
        runner,
        Translation(
            target.tokenizer, draft.tokenizer, ends=draft.runner.spec.eos_ids, names=(choice.name, name)
        ),
        f"{name} has another vocabulary than {choice.name}, and drafts through text: token {token} is "
        f"{there!r} to {name} and {here!r} to {choice.name}.",
    )


def read_draft_head(
    name: str, target: Loaded, choice: ModelChoice
) -> tuple[Head, HeadedRunner, tuple[str, ...]]:
    """Return the trained head of a folder, or MTP; its target, and notices about the head.

    Raises UsageError for unsuitable options, ModelError for a head that does not fit the target.
    """
    if choice.spread.is_on:
        raise UsageError(f"`draft` = {name} does not go together with `tp` or `device_map`.")
    spec = target.runner.spec
    if not (spec.hidden and spec.num_layers):
        raise ModelError(
            f"{choice.name} shows no hidden states of layers, which the draft head {name} reads.",
            hint="Draft with ngram, suffix or a smaller model.",
        )
    runner = cast(HeadedRunner, target.runner)
    file = open_mtp(choice.name, runner.spec) if name == MTP else open_head(name, runner.spec)
    return read_head(file, runner), runner, file.notices


def load_amateurs(name: str, expert: Loaded, choice: ModelChoice) -> dict[str, ModelRunner]:
    """Return {name: runner} of the amateur; {} for NO_AMATEUR.

    The amateur is loaded with the load options of the expert, `choice`. Raises ModelError for a model that
    cannot be contrasted with the expert.
    """
    if name == NO_AMATEUR:
        return {}
    amateur = load(replace(choice, name=name, spread=ONE_DEVICE))
    names = f"{name} cannot be the amateur of {choice.name}"
    if (difference := first_difference(expert.tokenizer, amateur.tokenizer)) is not None:
        token, here, there = difference
        raise ModelError(
            f"{names}: their vocabularies differ. Token {token} is {there!r} to {name} and {here!r} to "
            f"{choice.name}.",
            hint="A contrast needs two models of one vocabulary.",
        )
    vocab_size, width = expert.tokenizer.vocab_size, amateur.runner.spec.vocab_size
    if width < vocab_size:
        raise ModelError(f"{names}: it knows {width} tokens, and {choice.name} has {vocab_size}.")
    if expert.runner.spec.can_rollback and not amateur.runner.spec.can_rollback:
        raise ModelError(
            f"{names}: its layers keep a running state, so it cannot forget drafts that are rejected.",
            hint="Take an attention model.",
        )
    return {name: amateur.runner}
