"""Runs the rows of a batch on a model and hands their outcomes to a store."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from gencli.batch.capacity import plan_rows
from gencli.batch.grammars import Grammars
from gencli.batch.loop import Loop
from gencli.batch.prepare import Batch
from gencli.batch.progress import Progress
from gencli.batch.store import Store
from gencli.cli.batch_bar import BatchBar
from gencli.cli.batch_rows import make_judge
from gencli.cli.generate import load_model, model_choice
from gencli.cli.interrupts import Interrupts
from gencli.cli.render import Sink, Voice
from gencli.cli.tables import size
from gencli.drafters.make import make_drafter
from gencli.engine import Engine
from gencli.guidance.amateur import load_amateurs
from gencli.models.resolve import Loaded
from gencli.settings import Layer, Settings, resolve
from gencli.structured.compiling import grammar_env, make_compiler

__all__ = ["End", "Status", "generate_rows"]

Status = Literal["complete", "interrupted", "stopped"]
_AHEAD = 4  # times the samples that run at once are in the engine


@dataclass(frozen=True, slots=True)
class End:
    """How it ended: why, and how many samples ran at once in the end."""

    status: Status
    max_batch: int


def generate_rows(
    batch: Batch,
    store: Store,
    progress: Progress,
    *,
    voice: Voice,
    sink: Sink,
    handler: Interrupts,
) -> End:
    """Make the rows that the store lacks, until they are all there, or a signal or too many errors end it."""
    settings = _planned(batch, voice)
    loaded, _ = load_model(settings, voice, companions=batch.jobs.are_guided)
    with ExitStack() as stack:
        compiler = make_compiler(grammar_env(loaded), settings["grammar_timeout"])
        stack.callback(compiler.close)
        engine = Engine(
            loaded.runner,
            loaded.tokenizer,
            max_batch=settings["max_batch"],
            registry=batch.jobs.base.registry,
            drafter=make_drafter(
                settings["draft"], loaded, model_choice(settings), registry=batch.jobs.base.registry
            ),
            grammars=compiler,
            amateurs=load_amateurs(settings["contrast"], loaded, model_choice(settings)),
        )
        bar = BatchBar(progress, engine, voice, sink, stack)
        loop = _loop(batch, engine, loaded, Grammars(compiler), bar)
        handler.on_first = lambda: loop.stop(batch.plan["drain"])
        is_stopped = _run(batch, loop, store, progress, bar)
        handler.on_first = None
        bar.close()
    status: Status = "stopped" if is_stopped else "interrupted" if loop.is_stopped else "complete"
    return End(status, engine.limit)


def _run(batch: Batch, loop: Loop, store: Store, progress: Progress, bar: BatchBar) -> bool:
    """Keep all outcomes; whether there were too many errors."""
    progress.start(time.monotonic())
    allowed, is_over = batch.plan.max_errors, False
    for outcome in loop.run(store.pending(batch.rows())):
        store.add(outcome)
        bar.add_outcome(outcome)
        if allowed is not None and progress.failed > allowed and not is_over:
            is_over = True
            loop.stop()
    return is_over


def _loop(batch: Batch, engine: Engine, loaded: Loaded, grammars: Grammars, bar: BatchBar) -> Loop:
    judge = make_judge(engine, batch.settings["model"], grammars, keep_input=batch.plan["keep_input"])
    return Loop(
        engine,
        loaded.tokenizer,
        batch.jobs,
        grammars,
        judge,
        ahead=_AHEAD * engine.limit,
        on_event=bar.add_event,
    )


def _planned(batch: Batch, voice: Voice) -> Settings:
    """The settings, with the number of samples that the memory allows if that is to be planned."""
    if batch.plan["max_batch"] != "auto" and batch.plan["kv_memory"] is None:
        return batch.settings
    plan = plan_rows(batch)
    each = f", {size(plan.kv_bytes)} of keys and values each" if plan.kv_bytes else ""
    voice.say(f"Notice: {plan.max_batch} samples run side by side{each}.")
    planned = Layer.of("planned", {"max_batch": plan.max_batch})
    return resolve(*batch.settings.layers, planned, registry=batch.settings.registry)
