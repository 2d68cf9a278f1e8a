"""The options of a batch, checked for conflicts before any input is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from gencli.batch.batch_options import OWN
from gencli.config.layers import gather
from gencli.config.option import Option
from gencli.config.settings import AUTO_BATCH, Settings, run_variables
from gencli.errors import UsageError

_OF_FILES = ("resume", "allow_other_batch", "retry_errors", "overwrite", "keep_journal")
_OF_ROWS = ("input_format", "prompt_column", "id_column", "keep_input", "limit", "sample", "shard")


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The values of the batch's own options; `given`: the options shared with a run."""

    inputs: tuple[str, ...]
    own: Mapping[str, Any]
    given: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.own[key]

    @property
    def max_errors(self) -> int | None:
        """Number of rows that may fail; None for any number."""
        return 0 if self.own["fail_fast"] else self.own["max_errors"]

    def columns(self, *more: str) -> dict[str, Any]:
        """Return the options that control how records become rows, and `more`, for the journal."""
        return {f"`{key}`": self.own[key] for key in (*_OF_ROWS, *more)}


def make_plan(
    inputs: tuple[str, ...],
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    options: tuple[Option, ...] = OWN,
) -> BatchPlan:
    """Return the plan of flags and variables. Raises UsageError for conflicting options.

    `options`: the options that a run does not have.
    """
    if AUTO_BATCH in environ.items():
        flags = {"max_batch": "auto", **flags}
    values = {
        entry.key: entry.value(flags[entry.key]) if entry.key in flags else entry.default for entry in options
    }
    shared = {key: value for key, value in flags.items() if key not in values}
    plan = BatchPlan(inputs or ("-",), values, shared)
    _refuse(plan)
    return plan


def gather_settings(plan: BatchPlan, environ: Mapping[str, str]) -> Settings:
    """Return the settings shared by the rows: of a run, from the plan's options and the variables."""
    flags = dict(plan.given)
    if isinstance(plan["max_batch"], int):
        flags["max_batch"] = plan["max_batch"]
    return gather(flags, run_variables(environ), is_neutral=True)


def _refuse(plan: BatchPlan) -> None:
    is_stdout = plan["output"] in (None, "-")
    for key in _OF_FILES if is_stdout else ():
        if plan[key]:
            raise UsageError(
                f"`{key}` needs an output file: results on stdout have no journal.", hint="Add `output`."
            )
    for first, second in (("resume", "overwrite"), ("fail_fast", "max_errors")):
        if plan[first] and plan[second] is not None and plan[second] is not False:
            raise UsageError(
                f"`{first}` and `{second}` contradict each other.", hint="Leave one of them out."
            )
    for key in ("retry_errors", "allow_other_batch"):
        if plan[key] and not plan["resume"]:
            raise UsageError(f"`{key}` needs `resume`: it is about an earlier run.", hint="Add `resume`.")
    if plan["kv_memory"] is not None and plan["max_batch"] not in (None, "auto"):
        raise UsageError(
            "`kv_memory` and `max_batch` both limit the samples that run at once.",
            hint="Leave one of them out.",
        )
    if plan["engine"] != "ray":
        for key in ("workers", "worker_cpus", "worker_gpus"):
            if plan[key] is not None:
                raise UsageError(
                    f"`{key}` is for workers of Ray.", hint="Add `engine` = ray, or leave it out."
                )
        return
    if find_spec("ray") is None:
        raise UsageError(
            "`engine` = ray needs ray, which is not installed.",
            hint="Install it with: pip install 'gencli[ray]'",
        )
    if plan["max_batch"] == "auto" or plan["kv_memory"] is not None:
        name = "`max_batch` = auto" if plan["kv_memory"] is None else "`kv_memory`"
        raise UsageError(
            f"{name} plans from the memory of this machine, but workers of Ray may run on others.",
            hint="Give `max_batch` a number; a worker halves it if its memory runs out.",
        )
    gpus = plan["worker_gpus"] or 0
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
