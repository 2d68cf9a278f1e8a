"""Loads the model of a run and makes its engine, from the settings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from gencli.config.settings import Settings
from gencli.engine.engine import Engine
from gencli.engine.queue import WINDOW
from gencli.engine.token_budget import step_limit
from gencli.errors import UsageError
from gencli.models.backend import Spread
from gencli.models.files.checkpoint import ModelIdentity, identify_model
from gencli.models.files.model_card import OnTokenizer
from gencli.models.model_runner import ModelRunner, ModelSpec
from gencli.runtime.contrast import load_amateurs
from gencli.runtime.drafters import make_drafter
from gencli.runtime.models import Loaded, ModelChoice, batch_notices, load, model_notices
from gencli.runtime.reporter import Reporter
from gencli.speculative.drafter import Drafter
from gencli.text.tokenizer import Tokenizer, no_template
from processors.base import Compiler
from processors.registry import Registry

__all__ = ["bare_engine", "load_model", "make_engine", "model_choice", "model_identity"]


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
    choice = model_choice(settings)
    if drafter is None:
        drafter = make_drafter(settings["draft"], loaded, choice, registry=registry)
    if amateurs is None:
        amateurs = load_amateurs(settings["contrast"], loaded, choice)
    batch = settings["max_batch"] if max_batch is None else max_batch
    return Engine(
        loaded.runner,
        loaded.tokenizer,
        max_batch=batch,
        step_tokens=_step_tokens(loaded.runner.spec, batch),
        registry=registry,
        drafter=drafter,
        grammars=grammars,
        amateurs=amateurs,
        window=window,
        run_ahead=_run_ahead(settings, loaded.runner.spec),
    )


def _step_tokens(spec: ModelSpec, batch: int) -> int:
    """Return the token budget of a step; on a GPU its temporary memory has to fit next to the weights."""
    most = step_limit(None, batch)
    if spec.device.type != "cuda":
        return most
    from gencli.models.device import free_memory
    from gencli.models.model_memory import plan_chunk

    return plan_chunk(spec, free_memory(spec.device), rows=batch, most=most)


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
