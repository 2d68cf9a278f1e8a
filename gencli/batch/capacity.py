"""Plans the number of samples that run at once, from the first rows of a batch and the free memory."""

from __future__ import annotations

from itertools import islice

from gencli.batch.beside import models_of
from gencli.batch.feed import prompt_text
from gencli.batch.prepare import Batch
from gencli.batch.records import Row
from gencli.config.job import Job
from gencli.config.jobs import Jobs
from gencli.errors import GencliError, UsageError
from gencli.models.files.local_models import find_local
from gencli.models.files.model_card import read_card
from gencli.models.model_memory import Capacity, plan_capacity
from gencli.runtime.models import load_tokenizer
from gencli.text.tokenizer import Tokenizer

__all__ = ["count_tokens", "job_of", "plan_rows"]

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
    folder = find_local(settings["model"])
    if folder is None:
        raise UsageError(f"`max_batch` = auto: {settings['model']} is not on this machine.")
    return plan_capacity(
        models_of(batch, read_card(folder)),
        tokens=_longest(batch, tokenizer),
        dtype=settings["dtype"],
        kv_dtype=settings["kv_dtype"],
        device=settings["device"],
        quantize=settings["quantize"],
        kv_memory=kv_memory,
    )


def _longest(batch: Batch, tokenizer: Tokenizer) -> int:
    """Return the largest number of tokens, prompt plus `max_tokens`, among the first rows."""
    longest = batch.jobs.base.limits.max_tokens + 1
    for row in islice(batch.rows(), _SEEN):
        if row.failure:
            continue
        try:
            job = job_of(row, batch.jobs)
            longest = max(longest, count_tokens(row, job, tokenizer) + job.limits.max_tokens)
        except GencliError:  # reported when the row runs
            continue
    return longest
