"""Runs the rows of a batch on a model and hands their outcomes to a store."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Literal

from gencli.batch.engines.base import RowEngine
from gencli.batch.prepare import Batch
from gencli.batch.progress import Progress
from gencli.batch.store import Store
from gencli.cli.commands.batch_bar import BatchBar
from gencli.cli.commands.batch_loop import open_loop
from gencli.cli.terminal.interrupts import Interrupts
from gencli.cli.terminal.render import Sink, Stderr

__all__ = ["End", "Status", "generate_rows"]

Status = Literal["complete", "interrupted", "stopped"]


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
    is_chat: bool,
    voice: Stderr,
    sink: Sink,
    handler: Interrupts,
) -> End:
    """Make the rows that the store lacks, until they are all there, or a signal or too many errors end it.

    Where no row can run without the chat template (`is_chat`), ModelError for a model that has none.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(_opened(batch, voice, is_chat=is_chat))
        bar = BatchBar(progress, engine, voice, sink, stack)
        handler.on_first = lambda: engine.stop(batch.plan["drain"])
        is_over = _run(batch, engine, store, progress, bar)
        handler.on_first = None
        bar.close()
        status: Status = "stopped" if is_over else "interrupted" if engine.is_stopped else "complete"
        return End(status, engine.limit)


def _opened(batch: Batch, voice: Stderr, *, is_chat: bool) -> AbstractContextManager[RowEngine]:
    """What the rows run on."""
    if batch.plan["engine"] == "ray":
        from gencli.cli.commands.batch_ray import open_pool

        return open_pool(batch, voice, is_chat=is_chat)
    return open_loop(
        batch.jobs,
        batch.settings,
        is_chat=is_chat,
        are_guided=batch.jobs.are_guided,
        keep_input=batch.plan["keep_input"],
        voice=voice,
    )


def _run(batch: Batch, engine: RowEngine, store: Store, progress: Progress, bar: BatchBar) -> bool:
    """Keep all outcomes; whether there were too many errors."""
    progress.start(time.monotonic())
    allowed, is_over = batch.plan.max_errors, False
    for outcome in engine.run(store.pending(batch.rows()), bar.add_tokens):
        store.add(outcome)
        bar.add_outcome(outcome)
        if allowed is not None and progress.failed > allowed and not is_over:
            is_over = True
            engine.stop()
    return is_over
