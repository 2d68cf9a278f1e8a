"""Requests of rows: prompt tokens, and a seed derived from the row's id."""

from __future__ import annotations

from gencli.batch.messages import conversation
from gencli.batch.records import Row
from gencli.config.job import Job
from gencli.config.requests import make_request
from gencli.core.request import Request
from gencli.templates.chat_templates import render_conversation
from gencli.text.tokenizer import Tokenizer
from processors.rng import derive

__all__ = ["prompt_text", "row_key", "row_request", "row_seed"]

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
