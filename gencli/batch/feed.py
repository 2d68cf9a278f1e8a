"""From a row to its request: the prompt's tokens, and the seed that its id decides."""

from __future__ import annotations

from gencli.batch.messages import conversation
from gencli.batch.records import Row
from gencli.config.job import Job, make_request
from gencli.core.request import Request
from gencli.templates.conversation import render_conversation
from gencli.text.tokenizer import Tokenizer
from processors.rng import derive

__all__ = ["prompt_text", "row_key", "row_request", "row_seed"]

_DIGITS = 18  # a number of so many fits into 64 bits


def row_key(name: str) -> int | str:
    """What keys the row's seed: its id, as a number if it is written like an index."""
    is_number = name.isascii() and name.isdecimal() and str(int(name[:_DIGITS])) == name
    return int(name) if is_number else name


def row_seed(row: Row, job: Job) -> int:
    """The request's seed. A row with a seed of its own gives what its prompt alone gives with --seed."""
    return derive(job.seed, 0 if "seed" in row.options else row_key(row.id))


def prompt_text(row: Row, job: Job, tokenizer: Tokenizer) -> str:
    """The prompt as the model sees it, before the tokenizer adds what it puts around a text."""
    messages = conversation(row, job)
    if not messages:
        return row.prompt or ""
    return render_conversation(tokenizer, messages, tools=job.tools)


def row_request(row: Row, job: Job, tokenizer: Tokenizer) -> Request:
    """The request for a row, named by the row's index. Raises ModelError if the chat template fails."""
    ids = tokenizer.encode(prompt_text(row, job, tokenizer), special=not job.is_chat)
    return make_request(job, str(row.record.index), tuple(ids), row_seed(row, job), tokenizer)
