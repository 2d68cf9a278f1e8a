"""Checks of the options of an engine, before any input is read."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from gencli.config.settings import Settings
from gencli.errors import UsageError

__all__ = ["check_engine", "check_settings"]

_OF_RAY = ("workers", "worker_cpus", "worker_gpus")


def check_engine(own: Mapping[str, Any]) -> None:
    """Raise UsageError for a batch's own options that its engine does not support."""
    if own["engine"] != "ray":
        _refuse_workers(own)
        return
    if find_spec("ray") is None:
        raise UsageError(
            "`engine` = ray needs ray, which is not installed.",
            hint="Install it with: pip install 'gencli[ray]'",
        )
    if own["max_batch"] == "auto" or own["kv_memory"] is not None:
        name = "`max_batch` = auto" if own["kv_memory"] is None else "`kv_memory`"
        raise UsageError(
            f"{name} plans from the memory of this machine, but workers of Ray may run on others.",
            hint="Give `max_batch` a number; a worker halves it if its memory runs out.",
        )
    gpus = own["worker_gpus"] or 0
    if gpus > 1 and gpus % 1:
        raise UsageError(
            f"`worker_gpus` is {gpus:g}, but has to be a part of one GPU or a whole number of them."
        )


def check_settings(settings: Settings) -> None:
    """Raise UsageError for options of a run that workers of Ray do not support."""
    if settings["tp"] is not None:
        raise UsageError(
            f"{settings.name('tp')} splits a model over processes of torchrun, "
            "`engine` = ray starts its own.",
            hint="Leave one of them out; `device_map` = auto spreads a model over a worker's GPUs.",
        )
    if str(settings["device"]).startswith("cuda:"):
        raise UsageError(
            f"{settings.with_value('device')} names a GPU, but `engine` = ray gives each worker its own.",
            hint="Use `device` = cuda, and `worker_gpus`.",
        )


def _refuse_workers(own: Mapping[str, Any]) -> None:
    for key in _OF_RAY:
        if own[key] is not None:
            raise UsageError(f"`{key}` is for workers of Ray.", hint="Add `engine` = ray, or leave it out.")
