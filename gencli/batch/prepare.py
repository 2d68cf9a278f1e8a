"""A batch before it runs: input, output, and the settings of its rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gencli.batch.engines.check import check_settings
from gencli.batch.fingerprint import company, fingerprint
from gencli.batch.journal import Journal, read_header
from gencli.batch.outputs.documents import DocumentColumns, document_columns
from gencli.batch.outputs.folder import TEXTS
from gencli.batch.outputs.jsonl import OPENAI
from gencli.batch.outputs.output import Output, plan_output
from gencli.batch.overrides import row_jobs
from gencli.batch.places import Places
from gencli.batch.plan import Plan
from gencli.batch.records import Row
from gencli.batch.rows import RowOptions
from gencli.batch.selection import Selected, read_shard
from gencli.batch.sources import Input, open_input
from gencli.batch.survey import Survey, survey
from gencli.batch.trace import check_trace
from gencli.batch.work import Work
from gencli.config.jobs import Jobs
from gencli.config.settings import FLAG, Layer, Settings, resolve
from gencli.errors import UsageError
from gencli.models.device import is_batch_invariant, pick_device, pick_dtype
from gencli.models.files.gguf_header import weight_format
from gencli.models.files.local_models import find_local
from gencli.models.files.model_card import read_card
from gencli.models.files.model_files import OnBytes
from gencli.templates.prompt_templates import wanted_template
from gencli.watermark_keys import NamedKey, file_fingerprint

__all__ = ["Batch", "prepare"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything known before the rows are read. `places` is None if results go to a stream.

    `keys`: watermark keys that rows may select by name. `documents`: the columns of the run's schema, if a
    table of the results has them.
    """

    plan: Plan
    settings: Settings
    jobs: Jobs
    input: Input
    output: Output
    places: Places | None
    row_options: RowOptions
    selected: Selected
    work: Work
    keys: Mapping[str, NamedKey]
    documents: DocumentColumns | None = None

    def rows(self) -> Iterator[Row]:
        """Return the rows; each call reads the input again."""
        return self.work.rows(self.selected, self.row_options, self.jobs)

    def survey(self, on_fault: Callable[[Row], None] | None = None) -> Survey:
        """Read all rows once and return the survey."""
        return survey(self.rows, on_fault)

    def fingerprint(self, found: Survey, on_bytes: OnBytes | None = None) -> dict[str, Any]:
        """Return the values that must not change until the batch is complete (function `fingerprint`)."""
        template = self.row_options.template
        columns = {**self.plan.columns(*self.work.decides), "`template`": template and template.text}
        if self.settings["trace"] is not None:  # the trace contains finished rows
            columns |= {f"`{key}`": self.settings[key] for key in ("trace", "trace_top")}
        if self.settings["token_ids"]:
            columns["`token_ids`"] = True
        columns |= self._keys_of_rows()
        known = self._number_format()
        name = str(known[0]).removeprefix("torch.") if known else ""
        return fingerprint(self.settings, self.jobs.base, found, columns, name, on_bytes)

    def _keys_of_rows(self) -> dict[str, Any]:
        """Return fingerprints of the keys that only rows use, because the shared chain lacks them."""
        found: dict[str, Any] = {}
        shared = self.settings["watermark_key"]
        if shared is not None and self.settings["watermark"] == "none":
            found["`watermark_key`"] = file_fingerprint(Path(os.path.expanduser(shared)))
        if self.keys:
            found["`named_key`"] = {name: key.fingerprint for name, key in self.keys.items()}
        return found

    def open_journal(self, places: Places, found: Survey, on_bytes: OnBytes | None = None) -> Journal:
        """Return the existing journal or a new one. Raises UsageError if it belongs to another run."""
        names = company(self.settings, found)
        return places.open(self.fingerprint(found, on_bytes), company=names, is_free=self.is_free)

    def begun_with(self, key: str) -> Any:
        """Return the option's value in the run that is resumed; None for a new run."""
        return _begun_with(f"`{key}`", self.plan, self.places)

    @property
    def is_free(self) -> bool:
        """Whether batch size and drafts may change when the run is resumed."""
        known, is_sure = self._number_format(), self.settings["invariant"] == "on"
        return is_sure or self.plan["allow_other_batch"] or known is None or is_batch_invariant(*known)

    def _number_format(self) -> tuple[torch.dtype, torch.device] | None:
        """Return the model's number format and device; None if it is not on this machine.

        Workers of Ray are assumed to have a GPU unless the device is cpu.
        """
        settings = self.settings
        if settings["model"] == "fake":
            return torch.float32, torch.device("cpu")
        folder = find_local(settings["model"])
        if folder is None:
            return None
        is_remote = self.plan["engine"] == "ray" and settings["device"] != "cpu"
        device = torch.device("cuda") if is_remote else pick_device(settings["device"])
        stored = read_card(folder).weights.stored
        name = settings["dtype"]
        weights = weight_format(folder, settings["quantize"], dtype=name, device=device.type)
        dtype, _ = pick_dtype(name, device=device, stored=stored, is_quantized=weights != "none")
        return dtype, device


def prepare(plan: Plan, settings: Settings, work: Work) -> Batch:
    """Return the batch of a plan and its settings. Raises UsageError for every fault that needs no row.

    A resumed run without a seed gets the seed of the journal.
    """
    shard = read_shard(plan["shard"] or "0/1")
    source = open_input(plan.inputs, format=plan["input_format"], delimiter=plan["delimiter"])
    output = plan_output(plan["output"], plan["format"], inputs=source.paths, formats=work.formats)
    places = Places.of(output)
    own = [places.output, places.journal] if places else []
    _check_summary(plan, [*source.paths, *own])
    beside = [Path(plan["summary"])] if plan["summary"] is not None else []
    check_trace(settings["trace"], output, [*source.paths, *own, *beside])
    if settings["token_ids"] and output.format in (OPENAI, TEXTS):
        raise UsageError(
            f"{settings.name('token_ids')} adds ids to results, but those of {output.format.name} have none.",
            hint="Use `format` = jsonl, csv, tsv or parquet.",
        )
    settings = _with_seed(settings, plan, places)
    template = wanted_template(settings)
    options = RowOptions(template, plan["prompt_column"], plan["id_column"], plan["keep_input"])
    if plan["engine"] == "ray":
        check_settings(settings)
    keys = NamedKey.read_all(plan["named_key"])
    jobs = row_jobs(settings, keys)
    selected = Selected(source, plan["limit"], plan["sample"], shard, jobs.base.seed)
    is_open, documents = settings["extra_properties"], None
    if plan["columns"]:
        documents = document_columns(jobs.base.structure, output.format, is_open=is_open)
    return Batch(plan, settings, jobs, source, output, places, options, selected, work, keys, documents)


def _check_summary(plan: Plan, taken: Iterable[Path]) -> None:
    path = plan["summary"]
    if path is not None and Path(path).resolve() in {one.resolve() for one in taken}:
        raise UsageError(f"`summary` = {path} is also the input or the output.", hint="Name another file.")


def _with_seed(settings: Settings, plan: Plan, places: Places | None) -> Settings:
    """Return the settings, with the seed of the journal if they have none."""
    if settings["seed"] is not None or (seed := _begun_with("seed", plan, places)) is None:
        return settings
    return resolve(*settings.layers, Layer.of(FLAG, {"seed": seed}), registry=settings.registry)


def _begun_with(name: str, plan: Plan, places: Places | None) -> Any:
    header = read_header(places.journal) if places and plan["resume"] else None
    return None if header is None else header["fingerprint"].get(name)
