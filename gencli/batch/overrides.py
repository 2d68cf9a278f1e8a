"""Options that a row sets for itself, read by the rules of presets, and the job that results."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gencli.batch.formats.base import Cell, RecordFault
from gencli.batch.formats.jsonl import parse_json
from gencli.batch.records import ColumnError
from gencli.config.job import Job, make_job
from gencli.config.options.run import OPTIONS
from gencli.config.peers import meant_option
from gencli.config.presets.keys import KEYS, hint_of
from gencli.config.presets.read import read_values
from gencli.config.settings import Layer, Settings, resolve
from gencli.errors import UsageError
from gencli.structured.files import named_file
from processors.registry import Registry, builtin_registry

__all__ = ["ROW", "ROW_KEYS", "RowJobs", "refuse_key", "row_layer", "typed"]

ROW = "row"  # the origin of a row's values
_PER_RUN = {
    "Presets": "presets are read once, before the first row; write the values into the row",
    "Model": "one model serves all rows",
    "Output": "the result of all rows has one form",
}
_OF_PROMPTS = dict.fromkeys(("template", "vars"), "one template makes the prompts of all rows")
# Every option of a request; those of the sections above, and flags that presets lack, belong to the run.
ROW_KEYS = frozenset(key for key, entry in KEYS.items() if entry.section not in _PER_RUN) - {*_OF_PROMPTS} | {
    "chain",
    "stages",
}
_MAX_JOBS = 1024  # that are remembered


def refuse_key(key: str, *more: str) -> ColumnError:
    """What to say of a key that no row has; `more` are other names that could be meant."""
    entry = next((entry for entry in OPTIONS if entry.key == key), None)
    if entry:
        reason = _OF_PROMPTS.get(key) or _PER_RUN.get(entry.section) or entry.flag_only
        return ColumnError(f"{key} is set for the whole run, not by a row: {reason}.")
    if key in builtin_registry().names():
        return ColumnError(f"There is no option {key!r}. It is a stage: write it under stages.")
    return ColumnError(
        f"There is no option {key!r}. {meant_option(key, {name: repr(name) for name in (*ROW_KEYS, *more)})}",
        hint="Columns that are data need --template, --prompt-column or --keep-input.",
    )


def typed(key: str, value: Any) -> Any:
    """The value of an option; a table's cell is read as JSON where the option takes more than a text."""
    if not isinstance(value, Cell):
        return value
    hint = hint_of(KEYS[key]) if key in KEYS else None
    is_text = hint is not None and (hint is str or KEYS[key].type is str) and not value.startswith("[")
    if is_text or (key in KEYS and KEYS[key].choices):
        return str(value)
    try:
        return parse_json(value.lower() if value in ("True", "False", "TRUE", "FALSE") else value)
    except RecordFault:
        return str(value)


def _inline(key: str, value: Any) -> Any:
    """The value of a key that may name a file; data must not be able to read files, so a row cannot."""
    if key == "json_schema" and isinstance(value, Mapping | bool):
        return json.dumps(value)
    if named_file(key, str(value)) is not None:
        raise UsageError(
            f"{key} names a file, which a row cannot read.",
            hint="Write it into the row itself, or set it for the whole run.",
        )
    return value


def row_layer(options: Mapping[str, Any], registry: Registry) -> Layer:
    """The options of a row as a layer of settings. Raises UsageError for the first one that is wrong."""
    for key in options:
        if key not in ROW_KEYS:
            raise refuse_key(key)
    preset = read_values({key: _inline(key, value) for key, value in options.items()}, registry)
    for fault in preset.faults:
        raise UsageError(fault.text)
    stages = tuple(replace(entry, origin=ROW, said=f"stages.{entry.stage}") for entry in preset.stages)
    return Layer(ROW, preset.values, {key: key for key in preset.values}, stages)


class RowJobs:
    """The jobs of a batch's rows: the run's settings, and above them what a row sets.

    Rows of equal options share a job, but for the seed; the least used are forgotten. `base` is the job
    of a row that sets nothing. Of those that were asked for, some may be guided by the model itself
    (`are_guided`), and some by an amateur (`are_contrasted`); `stages` and `drafters` are all that are
    used.
    """

    def __init__(self, settings: Settings) -> None:
        self.base = make_job(settings)
        self.are_guided = self.are_contrasted = False
        self.stages, self.drafters = set[str](), set[str]()
        self._note(self.base)
        self._settings = settings
        self._registry = self.base.registry
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    def job(self, options: Mapping[str, Any], *, is_chat: bool = False) -> Job:
        """The job of a row; `is_chat` if it has messages, which need the chat template.

        A row without a seed of its own has the run's. Raises UsageError, or ProcessorsError, for options
        that do not exist, are out of bounds, or do not fit each other or those of the run.
        """
        is_chat = is_chat and not self._settings["chat"]
        if not options and not is_chat:
            return self.base
        rest = {key: value for key, value in options.items() if key != "seed"}
        key = json.dumps([rest, is_chat], sort_keys=True)
        if key in self._jobs:
            self._jobs.move_to_end(key)
        else:
            self._jobs[key] = self._made(rest, is_chat)
            self._note(self._jobs[key])
        if len(self._jobs) > _MAX_JOBS:
            self._jobs.popitem(last=False)
        return replace(self._jobs[key], seed=self._seed(options))

    def _note(self, job: Job) -> None:
        self.stages.update(name for name, _ in job.assembly.chain.active())
        self.drafters.add(job.drafting.drafter)
        if job.guidance.is_on:
            self.are_guided |= not job.guidance.amateur
            self.are_contrasted |= bool(job.guidance.amateur)

    def _seed(self, options: Mapping[str, Any]) -> int:
        if "seed" not in options:
            return self.base.seed
        return int(row_layer({"seed": options["seed"]}, self._registry).values["seed"])

    def _made(self, options: Mapping[str, Any], is_chat: bool) -> Job:
        if is_chat and (self._settings["raw"] or options.get("raw")):
            raise UsageError("A row with messages needs the chat template, but raw is set.")
        layer = row_layer({**options, **({"chat": True} if is_chat else {})}, self._registry)
        return make_job(resolve(*self._settings.layers, layer, registry=self._registry))
