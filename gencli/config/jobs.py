"""Jobs of many requests that share settings and override some of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any

from gencli.config.job import Job, make_job
from gencli.config.presets.keys import KEYS
from gencli.config.presets.read import read_values
from gencli.config.settings import Assigned, Layer, Settings, resolve
from gencli.errors import UsageError
from gencli.helpers import Recent
from processors.registry import Registry

__all__ = ["REQUEST_KEYS", "Jobs", "ReadLayer", "request_layer"]

ReadLayer = Callable[[Mapping[str, Any], Registry], Layer]
_MAX_JOBS, _MAX_CHARS = 1024, 16 << 20  # cache limits: number of jobs, and characters of their options
_SHARED = ("Presets", "Model", "Output")  # sections of options for the whole run
# Options that a request may set, and the three keys of presets that hold stages.
REQUEST_KEYS = frozenset(key for key, entry in KEYS.items() if entry.section not in _SHARED) - {
    "template", "vars",
} | {"chain", "fields", "stages"}  # fmt: skip


def request_layer(values: Mapping[str, Any], registry: Registry, origin: str) -> Layer:
    """Return the values of a request as a layer of settings. Raises UsageError for the first invalid one."""
    preset = read_values(values, registry)
    for fault in preset.faults:
        raise UsageError(fault.text)
    stages = tuple(replace(entry, origin=origin, said=_said(entry)) for entry in preset.stages)
    return Layer(origin, preset.values, {key: key for key in preset.values}, stages)


def _said(entry: Assigned) -> str:
    """Return the source of a stage's value for messages, with the path of its condition."""
    is_field = entry.when is not None and entry.when.path is not None
    return f"stages.{entry.stage} ({entry.when.path})" if is_field and entry.when else f"stages.{entry.stage}"


class Jobs:
    """The jobs of many requests on one model: shared settings, overridden by the options of each request.

    `read` turns the options of a request into a layer. Requests with equal options share a job except for the
    seed; the least recently used jobs are dropped. `base`: job of a request without options. `are_guided`,
    `are_contrasted`: whether any job so far uses guidance, or a contrast model. `stages`, `drafters`: names
    used so far. Thread-safe.
    """

    def __init__(self, settings: Settings, read: ReadLayer) -> None:
        self.base = make_job(settings)
        self.are_guided = self.are_contrasted = False
        self.stages, self.drafters = set[str](), set[str]()
        self._lock = Lock()  # guards the names in use
        self._note(self.base)
        self._settings, self._read = settings, read
        self._registry = self.base.registry
        self._jobs: Recent[str, Job] = Recent(_MAX_JOBS, most=_MAX_CHARS, weigh=len)

    def job(self, options: Mapping[str, Any], *, is_chat: bool = False) -> Job:
        """Return the job of a request; `is_chat`: its messages need the chat template.

        A request without a seed gets the shared one. Raises UsageError or ProcessorsError for options that
        are unknown, out of bounds, or in conflict with each other or with the shared ones.
        """
        is_chat = is_chat and not self._settings["chat"]
        if not options and not is_chat:
            return self.base
        rest = {key: value for key, value in options.items() if key != "seed"}
        key = json.dumps([rest, is_chat], sort_keys=True)
        job = self._jobs.get(key, lambda: self._made(rest, is_chat))
        return replace(job, seed=self._seed(options))

    def _note(self, job: Job) -> None:
        with self._lock:
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
        job = make_job(resolve(*self._settings.layers, layer, registry=self._registry))
        self._note(job)
        return job
