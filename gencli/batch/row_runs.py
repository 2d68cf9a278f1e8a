"""Runs the rows of a batch on a model, and stores their outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from gencli.batch.engines.base import RowEngine
from gencli.batch.prepare import Batch
from gencli.batch.progress import Progress
from gencli.batch.reporter import BatchReporter
from gencli.batch.store import Store

__all__ = ["End", "Status", "run_rows"]

Status = Literal["complete", "interrupted", "stopped"]


@dataclass(frozen=True, slots=True)
class End:
    """Status of a run at its end, and the number of samples that ran at once in the end.

    `stopped`: more rows failed than allowed.
    """

    status: Status
    max_batch: int


def run_rows(
    batch: Batch, store: Store, progress: Progress, reporter: BatchReporter, *, is_chat: bool
) -> End:
    """Run the rows without a stored outcome; end early at a signal or after too many errors.

    `is_chat`: all rows need the chat template. Raises ModelError for a model without one.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(batch.work.open(batch, reporter, is_chat=is_chat))
        show = stack.enter_context(reporter.watch(progress, engine))
        reporter.on_interrupt(lambda: engine.stop(batch.plan["drain"]))
        is_over = _run(batch, engine, store, progress, show)
        reporter.on_interrupt(None)
        status: Status = "stopped" if is_over else "interrupted" if engine.is_stopped else "complete"
        return End(status, engine.limit)


def _run(batch: Batch, engine: RowEngine, store: Store, progress: Progress, show: Callable[[], None]) -> bool:
    """Store all outcomes; return whether more rows failed than allowed."""

    def count(tokens: int) -> None:
        progress.add_tokens(tokens, time.monotonic(), engine.occupancy)
        show()

    progress.start(time.monotonic())
    allowed, is_over = batch.plan.max_errors, False
    for outcome in engine.run(store.pending(batch.rows()), count):
        store.add(outcome)
        progress.add_outcome(outcome)
        if allowed is not None and progress.failed > allowed and not is_over:
            is_over = True
            engine.stop()
    return is_over
