"""The jobs of many requests that share settings, and set some of their own."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gencli.config.job import Job, make_job
from gencli.config.presets.keys import KEYS
from gencli.config.presets.read import read_values
from gencli.config.settings import Layer, Settings, resolve
from gencli.errors import UsageError
from processors.registry import Registry

__all__ = ["REQUEST_KEYS", "Jobs", "ReadLayer", "request_layer"]

ReadLayer = Callable[[Mapping[str, Any], Registry], Layer]
_MAX_JOBS = 1024  # that are remembered
_SHARED = ("Presets", "Model", "Output")  # sections that are about all requests of a run
# Every option that a request may set for itself, and the two blocks of presets that hold stages.
REQUEST_KEYS = frozenset(key for key, entry in KEYS.items() if entry.section not in _SHARED) - {
    "template", "vars",
} | {"chain", "stages"}  # fmt: skip


def request_layer(values: Mapping[str, Any], registry: Registry, origin: str) -> Layer:
    """The values of a request as a layer of settings. Raises UsageError for the first one that is wrong."""
    preset = read_values(values, registry)
    for fault in preset.faults:
        raise UsageError(fault.text)
    stages = tuple(replace(entry, origin=origin, said=f"stages.{entry.stage}") for entry in preset.stages)
    return Layer(origin, preset.values, {key: key for key in preset.values}, stages)


class Jobs:
    """The jobs of many requests on one model: shared settings, and above them what a request sets itself.

    `read` makes a layer of a request's options. Requests of equal options share a job, but for the seed; the
    least used jobs are forgotten. `base` is the job of a request that sets nothing. Of the jobs that were
    asked for, some may be guided by the model itself (`are_guided`), and some by a contrast model
    (`are_contrasted`); `stages` and `drafters` are all that they use.
    """

    def __init__(self, settings: Settings, read: ReadLayer) -> None:
        self.base = make_job(settings)
        self.are_guided = self.are_contrasted = False
        self.stages, self.drafters = set[str](), set[str]()
        self._note(self.base)
        self._settings, self._read = settings, read
        self._registry = self.base.registry
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    def job(self, options: Mapping[str, Any], *, is_chat: bool = False) -> Job:
        """The job of a request; `is_chat` if it has messages, which need the chat template.

        A request without a seed of its own has the shared one. Raises UsageError, or ProcessorsError, for
        options that do not exist, are out of bounds, or do not fit each other or the shared ones.
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
        return int(self._read({"seed": options["seed"]}, self._registry).values["seed"])

    def _made(self, options: Mapping[str, Any], is_chat: bool) -> Job:
        if is_chat and (self._settings["raw"] or options.get("raw")):
            raise UsageError("A row with messages needs the chat template, but raw is set.")
        layer = self._read({**options, **({"chat": True} if is_chat else {})}, self._registry)
        return make_job(resolve(*self._settings.layers, layer, registry=self._registry))
