"""A batch before it runs: its input, output, work and the settings of its rows; the number of rows that
fit into memory; and the preview without loading the weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from gencli.batch.batch_plan import BatchPlan, check_settings
from gencli.batch.batch_records import BatchSummary, Failure, Outcome, Record, Row, RowEngine
from gencli.batch.batch_rows import RowOptions, Survey, conversation, row_jobs, survey
from gencli.batch.batch_sources import Input, Selected, open_input, read_shard
from gencli.batch.journal import Places, check_trace, fingerprint, read_header
from gencli.batch.output_formats import OutputTarget, plan_output
from gencli.batch.table_columns import DocumentColumns, OutputFormat, Table, document_columns
from gencli.config.job import Job, Jobs, make_request
from gencli.config.job_parts import is_draft_model, wanted_template
from gencli.config.run_options import NO_AMATEUR
from gencli.config.settings import FLAG, Settings, SettingsLayer, resolve
from gencli.core.request import EARLY_EXIT, MTP, Request
from gencli.errors import GencliError, UsageError
from gencli.models.device import is_batch_invariant, pick_device, pick_dtype
from gencli.models.files.gguf_header import weight_format
from gencli.models.files.local_models import find_local
from gencli.models.files.model_card import Card, Weights, read_card
from gencli.models.files.model_files import OnBytes
from gencli.models.model_memory import (
    Capacity,
    Held,
    guess_seconds,
    measure_speed,
    plan_capacity,
    process_memory,
)
from gencli.runtime.model_loading import load_tokenizer
from gencli.speculative.head_files import is_head, open_head, open_mtp
from gencli.templates.chat_templates import render_conversation
from gencli.text.tokenizer import Tokenizer
from gencli.watermark_keys import NamedKey, file_fingerprint
from processors.rng import derive

if TYPE_CHECKING:
    from gencli.batch.batch_records import BatchReporter


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything known before the rows are read. `places` is None if results go to a stream.

    `keys`: watermark keys that rows may select by name. `documents`: the columns of the run's schema, if a
    table of the results has them.
    """

    plan: BatchPlan
    settings: Settings
    jobs: Jobs
    input: Input
    output: OutputTarget
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

    def fingerprint(self, survey: Survey, on_bytes: OnBytes | None = None) -> dict[str, Any]:
        """Return the values that must not change until the batch is complete (function `fingerprint`)."""
        template = self.row_options.template
        columns = {**self.plan.columns(*self.work.decides), "`template`": template and template.text}
        if self.settings["trace"] is not None:  # the trace contains finished rows
            columns |= {f"`{key}`": self.settings[key] for key in ("trace", "trace_top")}
        if self.settings["token_ids"]:
            columns["`token_ids`"] = True
        # The chain in the fingerprint lacks the keys that only rows use.
        shared = self.settings["watermark_key"]
        if shared is not None and self.settings["watermark"] == "none":
            columns["`watermark_key`"] = file_fingerprint(Path(os.path.expanduser(shared)))
        if self.keys:
            columns["`named_key`"] = {name: key.fingerprint for name, key in self.keys.items()}
        number_format = self._number_format()
        name = str(number_format[0]).removeprefix("torch.") if number_format else ""
        return fingerprint(self.settings, self.jobs.base, survey, columns, name, on_bytes)

    @property
    def is_free(self) -> bool:
        """Whether batch size and drafts may change when the run is resumed."""
        if self.settings["invariant"] == "on" or self.plan["allow_other_batch"]:
            return True
        number_format = self._number_format()
        return number_format is None or is_batch_invariant(*number_format)

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
        return _dtype_of(read_card(folder), settings, device), device


def _dtype_of(card: Card, settings: Settings, device: torch.device) -> torch.dtype:
    name = settings["dtype"]
    weights = weight_format(card.folder, settings["quantize"], dtype=name, device=device.type)
    return pick_dtype(name, device=device, stored=card.weights.stored, is_quantized=weights != "none")[0]


def prepare(plan: BatchPlan, settings: Settings, work: Work) -> Batch:
    """Return the batch of a plan and its settings. Raises UsageError for every fault that needs no row.

    A resumed run without a seed gets the seed of the journal.
    """
    shard = read_shard(plan["shard"] or "0/1")
    source = open_input(plan.inputs, format=plan["input_format"], delimiter=plan["delimiter"])
    output = plan_output(plan["output"], plan["format"], inputs=source.paths, formats=work.formats)
    places = Places.of(output)
    taken = [*source.paths, *([places.output, places.journal] if places else [])]
    if (path := plan["summary"]) is not None:
        if Path(path).resolve() in {other.resolve() for other in taken}:
            raise UsageError(
                f"`summary` = {path} is also the input or the output.", hint="Name another file."
            )
        taken.append(Path(path))
    check_trace(settings["trace"], output, taken)
    if settings["token_ids"] and not output.format.has_fields:
        raise UsageError(
            f"{settings.name('token_ids')} adds ids to results, but those of {output.format.name} have none.",
            hint="Use `format` = jsonl, csv, tsv or parquet.",
        )
    if settings["seed"] is None and (seed := begun_with("seed", plan, places)) is not None:
        settings = resolve(
            *settings.layers, SettingsLayer.of(FLAG, {"seed": seed}), registry=settings.registry
        )
    template = wanted_template(settings)
    options = RowOptions(template, plan["prompt_column"], plan["id_column"], plan["keep_input"])
    if plan["engine"] == "ray":
        check_settings(settings)
    keys = NamedKey.read_all(plan["named_key"])
    jobs = row_jobs(settings, keys)
    selected = Selected(source, plan["limit"], plan["sample"], shard, jobs.base.seed)
    documents = None
    if plan["columns"]:
        is_open = settings["extra_properties"]
        documents = document_columns(jobs.base.structure, output.format, is_open=is_open)
    return Batch(plan, settings, jobs, source, output, places, options, selected, work, keys, documents)


def begun_with(name: str, plan: BatchPlan, places: Places | None) -> Any:
    """Return a value of the fingerprint of the run that is resumed; None for a new run."""
    header = read_header(places.journal) if places and plan["resume"] else None
    return None if header is None else header["fingerprint"].get(name)


class Work(Protocol):
    """Turns records into rows, rows into outcomes, and outcomes into an output."""

    @property
    def formats(self) -> Mapping[str, OutputFormat]:
        """The output formats by name; the first one is used for stdout."""

    @property
    def decides(self) -> tuple[str, ...]:
        """Keys of the plan that affect results, so that a run with other values cannot resume this one."""

    def rows(self, records: Iterable[Record], options: RowOptions, jobs: Jobs) -> Iterator[Row]:
        """Yield a row for each record; a fault becomes the `failure` of its row."""

    def open(
        self, batch: Batch, reporter: BatchReporter, *, is_chat: bool
    ) -> AbstractContextManager[RowEngine]:
        """Load the model; the context's value runs rows. `is_chat`: all rows need the chat template."""

    def table(self, batch: Batch, survey: Survey) -> Table:
        """Return the columns of a table of the results."""

    def add(self, outcome: Outcome) -> None:
        """Record a result that is being written."""

    def lines(self, batch: Batch, summary: BatchSummary) -> Iterator[str]:
        """Yield the lines of the run's summary for a person."""

    def record(self, summary: BatchSummary) -> dict[str, Any]:
        """Return the summary of the run as JSON."""


_DIGITS = 18  # numbers with at most 18 digits fit into 64 bits


def row_key(name: str) -> int | str:
    """Return the key of the row's seed: its id, as an int if it has the form of an index."""
    is_number = name.isascii() and name.isdecimal() and str(int(name[:_DIGITS])) == name
    return int(name) if is_number else name


def row_seed(row: Row, job: Job) -> int:
    """Return the seed of the request.

    A row with its own seed gets the same text as a run with this `seed` and this prompt alone.
    """
    return derive(job.seed, 0 if "seed" in row.options else row_key(row.id))


def prompt_text(row: Row, job: Job, tokenizer: Tokenizer) -> str:
    """Return the prompt text with the job's instructions, before the tokenizer adds special tokens."""
    messages = conversation(row, job)
    if not messages:
        return job.instructions.before + (row.prompt or "")
    return render_conversation(tokenizer, messages, instructions=job.instructions)


def row_request(row: Row, job: Job, tokenizer: Tokenizer) -> Request:
    """Return the request of a row, named by the row's index. Raises ModelError if the template fails."""
    ids = tokenizer.encode(prompt_text(row, job, tokenizer), special=not job.is_chat)
    return make_request(job, str(row.record.index), tuple(ids), row_seed(row, job), tokenizer)


_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Shown:
    """A prompt as passed to the model."""

    row: Row
    text: str
    tokens: int


@dataclass(slots=True)
class Preview:
    """Counts of rows, samples and tokens; outputs are counted with their maximum length."""

    shown: list[Shown] = field(default_factory=list)
    num_rows: int = 0
    samples: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    shortest: int = 0
    longest: int = 0
    faults: int = 0


@dataclass(frozen=True, slots=True)
class BatchEstimate:
    """Memory and time of the batch with `batch` samples at once; `seconds` is a rough estimate.

    `process`: memory of Python and PyTorch in bytes; None if the system does not report it.
    """

    capacity: Capacity
    batch: int
    process: int | None
    seconds: float


def look(batch: Batch, preview: Preview) -> Iterator[tuple[Row, str]]:
    """Check every row: yield invalid rows with the reason, count the others in `preview`."""
    from gencli.models.other_runners import CONTEXT

    settings = batch.settings
    tokenizer = load_tokenizer(settings["model"], trust_remote_code=settings["trust_remote_code"])
    card = _card(settings["model"])
    context = card.context if card else CONTEXT if settings["model"] == "fake" else None
    for row in batch.rows():
        preview.num_rows += 1
        fault = row.failure.message if row.failure else _looked_at(row, batch, tokenizer, context, preview)
        if fault:
            preview.faults += 1
            yield row, fault


def _looked_at(row: Row, batch: Batch, tokenizer: Tokenizer, context: int | None, preview: Preview) -> str:
    """Count the row in `preview`; return its fault, or ""."""
    try:
        job = job_of(row, batch.jobs)
        tokens = count_tokens(row, job, tokenizer)
    except Exception as error:  # an error of any kind concerns only this row
        return Failure.of(error).message
    if context is not None and tokens >= context:
        return f"The prompt has {tokens} tokens, but the model takes {context} with the output."
    if not tokens:
        return "The prompt is empty: it has no tokens."
    if len(preview.shown) < _SHOWN:
        preview.shown.append(Shown(row, prompt_text(row, job, tokenizer), tokens))
    max_output = job.limits.max_tokens if context is None else min(job.limits.max_tokens, context - tokens)
    preview.samples += job.n
    preview.prompt_tokens += tokens
    preview.output_tokens += max_output * job.n
    preview.shortest = min(preview.shortest or tokens, tokens)
    preview.longest = max(preview.longest, tokens + max_output)
    return ""


def _card(model: str) -> Card | None:
    folder = None if model == "fake" else find_local(model)
    return read_card(folder) if folder else None


def need_of(batch: Batch, preview: Preview) -> BatchEstimate | None:
    """Return the memory and time for the counted rows; None for an unknown model or without rows."""
    settings, card = batch.settings, _card(batch.settings["model"])
    if card is None or not preview.samples:
        return None
    capacity = _capacity(batch, card, preview.longest)
    is_planned = batch.plan["max_batch"] == "auto" or batch.plan["kv_memory"] is not None
    size = min(preview.samples, capacity.max_batch if is_planned else settings["max_batch"])
    device = pick_device(settings["device"])
    dtype = _dtype_of(card, settings, device)
    if settings["threads"] is not None:
        torch.set_num_threads(settings["threads"])
    process = process_memory()  # before the measurement itself allocates memory
    seconds = guess_seconds(
        measure_speed(device, dtype),
        card,
        weights=capacity.weights,
        batch=size,
        prompt_tokens=preview.prompt_tokens,
        output_tokens=preview.output_tokens,
    )
    return BatchEstimate(capacity, size, process, seconds)


_SEEN = 256  # rows whose lengths are measured; if a later row is longer, out-of-memory halves `max_batch`
_FAKE = 64  # samples of the fake model, which needs no memory


def job_of(row: Row, jobs: Jobs) -> Job:
    """Return the job of a row without a failure."""
    return jobs.job(row.options, is_chat=bool(row.messages))


def count_tokens(row: Row, job: Job, tokenizer: Tokenizer) -> int:
    """Return the number of tokens of the row's prompt, special tokens included."""
    return len(tokenizer.encode(prompt_text(row, job, tokenizer), special=not job.is_chat))


def plan_rows(batch: Batch) -> Capacity:
    """Return the planned capacity. Raises UsageError if the model is missing or uses several devices."""
    settings, kv_memory = batch.settings, batch.plan["kv_memory"]
    for key in ("tp", "device_map"):
        if settings[key] is not None:
            raise UsageError(
                f"Memory is planned for one device, but {settings.name(key)} uses several.",
                hint="Give `max_batch` a number; it is halved if memory runs out.",
            )
    if settings["model"] == "fake":
        if kv_memory is not None:
            raise UsageError("`kv_memory`: the fake model has no keys and values.", hint="Leave it out.")
        return Capacity(_FAKE, 0, None, None)
    tokenizer = load_tokenizer(settings["model"], trust_remote_code=settings["trust_remote_code"])
    card = _needed_card("max_batch", "auto", settings["model"])
    longest = batch.jobs.base.limits.max_tokens + 1  # of prompt plus `max_tokens` among the first rows
    for row in islice(batch.rows(), _SEEN):
        if row.failure:
            continue
        with suppress(GencliError):  # reported when the row runs
            job = job_of(row, batch.jobs)
            longest = max(longest, count_tokens(row, job, tokenizer) + job.limits.max_tokens)
    return _capacity(batch, card, longest)


def _capacity(batch: Batch, card: Card, tokens: int) -> Capacity:
    return plan_capacity(
        tuple(_models_of(batch, card)),
        tokens=tokens,
        kv_memory=batch.plan["kv_memory"],
        **{key: batch.settings[key] for key in ("dtype", "kv_dtype", "device", "quantize")},
    )


def _models_of(batch: Batch, card: Card) -> Iterator[Held]:
    """Yield the models that the batch holds in memory; `card` describes its own model."""
    yield Held("", card, 2 if batch.jobs.are_guided else 1)
    if (name := batch.settings["contrast"]) != NO_AMATEUR:
        yield Held(name, _needed_card("contrast", name, name), 1 if batch.jobs.are_contrasted else 0)
    name = batch.settings["draft"]
    kind, _, count = name.partition(":")
    if kind == EARLY_EXIT:  # it shares the weights of the model, and has the keys and values of its layers
        total = card.layers or 1
        share = min(int(count), total) if count.isdecimal() else -(-total // 2)
        values = card.kv_values and card.kv_values * share // total
        yield Held(name, replace(card, weights=Weights(stored=card.weights.stored), kv_values=values), 1)
    elif card.spec is not None and (name == MTP or (find_local(name) is not None and is_head(name))):
        yield Held(name, _of_head(name, card), 1)
    elif is_draft_model(name, batch.jobs.base.registry):
        yield Held(name, _needed_card("draft", name, name), 1)


def _of_head(name: str, card: Card) -> Card:
    """Return the card of a model with the weights, keys and values of its head in place of its own."""
    assert card.spec is not None
    file = open_mtp(str(card.folder), card.spec) if name == MTP else open_head(name, card.spec)
    numbers = 0 if name == MTP else sum(stored.count for stored in file.tensors.values())  # in its files
    weights = Weights(parameters=numbers, stored=card.weights.stored)
    return replace(card, weights=weights, kv_values=file.lane_values, spec=None)


def _needed_card(key: str, value: str, model: str) -> Card:
    folder = find_local(model)
    if folder is None:
        raise UsageError(f"`{key}` = {value}: {model} is not on this machine.")
    return read_card(folder)
