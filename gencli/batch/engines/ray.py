"""Rows on Ray workers that each hold the model: the settings of a worker, and its loop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from gencli import __version__
from gencli.batch.engines.base import RowEngine
from gencli.batch.engines.cluster import connected, fair_share
from gencli.batch.engines.local import open_loop
from gencli.batch.overrides import row_jobs
from gencli.batch.prepare import Batch
from gencli.config.settings import FLAG, Layer, resolve
from gencli.errors import UsageError
from gencli.plugins.registry import make_registry
from gencli.runtime.quiet import quiet_libraries
from gencli.runtime.reporter import Recorder, Reporter
from gencli.watermark_keys import NamedKey

__all__ = ["open_pool"]

_WORKERS = 2


@dataclass(frozen=True, slots=True)
class _Orders:
    """Settings with which a worker runs rows as this process would."""

    version: str
    folder: str
    layers: tuple[Layer, ...]
    is_chat: bool
    keep_input: bool
    are_guided: bool
    named_keys: tuple[tuple[str, str], ...]  # names and files of watermark keys, which each worker reads


@contextmanager
def open_pool(batch: Batch, reporter: Reporter, *, is_chat: bool) -> Iterator[RowEngine]:
    """Start workers and load their models; the context's value is their pool.

    Raises UsageError if Ray has too few resources for the workers.
    """
    plan, settings = batch.plan, batch.settings
    workers = plan["workers"] or _WORKERS
    # A random seed is chosen once, for all workers.
    layers = (*settings.layers, Layer.of(FLAG, {"seed": batch.jobs.base.seed}))
    orders = _Orders(
        __version__,
        os.getcwd(),
        layers,
        is_chat,
        plan["keep_input"],
        batch.jobs.are_guided,
        plan["named_key"],
    )
    with connected() as (place, there):
        share = fair_share(
            there, workers, plan["worker_cpus"], plan["worker_gpus"], is_cpu=settings["device"] == "cpu"
        )
        reporter.notice(f"Ray on {place} runs {workers} workers, each with {share}.")
        from gencli.batch.engines.pool import Pool

        window = 2 * settings["max_batch"]  # as many rows wait as run
        pool = Pool(partial(_open, orders), workers=workers, share=share, window=window)
        pool.wait()
        yield pool


@contextmanager
def _open(orders: _Orders) -> Iterator[RowEngine]:
    """Load the model in a worker; the context's value is the loop that runs rows on it."""
    if orders.version != __version__:
        raise UsageError(
            f"A worker has gencli {__version__}, and the batch was begun with {orders.version}.",
            hint="Install the same version on every node.",
        )
    with suppress(OSError):  # a relative path of the driver may not exist on the node
        os.chdir(orders.folder)
    with quiet_libraries():
        plugins = resolve(*orders.layers)["plugin"]
        settings = resolve(*orders.layers, registry=make_registry(plugins))
        reporter = Recorder()
        with open_loop(
            row_jobs(settings, NamedKey.read_all(orders.named_keys)),
            settings,
            is_chat=orders.is_chat,
            are_guided=orders.are_guided,
            keep_input=orders.keep_input,
            reporter=reporter,
        ) as loop:
            loop.notices.extend(reporter.lines)
            yield loop
