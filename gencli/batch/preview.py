"""Preview of a batch without loading the weights: prompts, tokens, faults, memory and time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gencli.batch.beside import models_of
from gencli.batch.capacity import count_tokens, job_of
from gencli.batch.feed import prompt_text
from gencli.batch.prepare import Batch
from gencli.batch.records import Failure, Row
from gencli.models.files.gguf_header import weight_format
from gencli.models.files.local_models import find_local
from gencli.models.files.model_card import Card, read_card
from gencli.models.model_memory import Capacity, guess_seconds, measure_speed, plan_capacity, process_memory
from gencli.runtime.models import load_tokenizer
from gencli.text.tokenizer import Tokenizer

__all__ = ["Need", "Preview", "Shown", "look", "need_of"]

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
class Need:
    """Memory and time of the batch with `batch` samples at once; `seconds` is a rough estimate.

    `process`: memory of Python and PyTorch in bytes; None if the system does not report it.
    """

    capacity: Capacity
    batch: int
    process: int | None
    seconds: float


def look(batch: Batch, found: Preview) -> Iterator[tuple[Row, str]]:
    """Check every row: yield invalid rows with the reason, count the others in `found`."""
    settings = batch.settings
    tokenizer = load_tokenizer(settings["model"], trust_remote_code=settings["trust_remote_code"])
    context = _context(settings["model"])
    for row in batch.rows():
        found.num_rows += 1
        fault = row.failure.message if row.failure else _looked_at(row, batch, tokenizer, context, found)
        if fault:
            found.faults += 1
            yield row, fault


def _looked_at(row: Row, batch: Batch, tokenizer: Tokenizer, context: int | None, found: Preview) -> str:
    """Count the row in `found`; return its fault, or ""."""
    try:
        job = job_of(row, batch.jobs)
        tokens = count_tokens(row, job, tokenizer)
    except Exception as error:  # an error of any kind concerns only this row
        return Failure.of(error).message
    if context is not None and tokens >= context:
        return f"The prompt has {tokens} tokens, but the model takes {context} with the output."
    if not tokens:
        return "The prompt is empty: it has no tokens."
    if len(found.shown) < _SHOWN:
        found.shown.append(Shown(row, prompt_text(row, job, tokenizer), tokens))
    most = job.limits.max_tokens if context is None else min(job.limits.max_tokens, context - tokens)
    found.samples += job.n
    found.prompt_tokens += tokens
    found.output_tokens += most * job.n
    found.shortest = min(found.shortest or tokens, tokens)
    found.longest = max(found.longest, tokens + most)
    return ""


def _context(model: str) -> int | None:
    card = _card(model)
    if card is not None:
        return card.context
    from gencli.models.other_runners import CONTEXT

    return CONTEXT if model == "fake" else None


def _card(model: str) -> Card | None:
    folder = None if model == "fake" else find_local(model)
    return read_card(folder) if folder else None


def need_of(batch: Batch, found: Preview) -> Need | None:
    """Return the memory and time for the counted rows; None for an unknown model or without rows."""
    import torch

    settings, card = batch.settings, _card(batch.settings["model"])
    if card is None or not found.samples:
        return None
    from gencli.models.device import pick_device, pick_dtype

    capacity = plan_capacity(
        models_of(batch, card),
        tokens=found.longest,
        dtype=settings["dtype"],
        kv_dtype=settings["kv_dtype"],
        device=settings["device"],
        quantize=settings["quantize"],
        kv_memory=batch.plan["kv_memory"],
    )
    is_planned = batch.plan["max_batch"] == "auto" or batch.plan["kv_memory"] is not None
    size = min(found.samples, capacity.max_batch if is_planned else settings["max_batch"])
    device, name = pick_device(settings["device"]), settings["dtype"]
    weights = weight_format(card.folder, settings["quantize"], dtype=name, device=device.type)
    number: torch.dtype = pick_dtype(
        name, device=device, stored=card.weights.stored, is_quantized=weights != "none"
    )[0]
    if settings["threads"] is not None:
        torch.set_num_threads(settings["threads"])
    process = process_memory()  # before the measurement itself allocates memory
    seconds = guess_seconds(
        measure_speed(device, number),
        card,
        weights=capacity.weights,
        batch=size,
        prompt_tokens=found.prompt_tokens,
        output_tokens=found.output_tokens,
    )
    return Need(capacity, size, process, seconds)
