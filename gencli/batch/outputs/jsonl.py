"""JSON Lines: one result per line, or one response line of OpenAI's batch files per row."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from gencli.batch.openai import response_line
from gencli.batch.outputs.base import OutputFormat, RowWriter, Table, TextTarget
from gencli.batch.records import Outcome
from gencli.json_text import to_json

__all__ = ["JSONL", "OPENAI"]


class _Lines:
    """Writes the records of `gencli run` with `format` = json, with the row's index first."""

    def __init__(self, target: TextTarget) -> None:
        self._target = target

    def write(self, outcome: Outcome) -> None:
        """Write the row's line."""
        self._target.write(to_json(self.line(outcome)) + "\n")

    def line(self, outcome: Outcome) -> Any:
        """Return the fields of a record of `gencli run` after the row's index."""
        return {"index": outcome.index, **outcome.result, "id": outcome.id}


class _OpenAILines(_Lines):
    def line(self, outcome: Outcome) -> Any:
        """Return a response with choices and usage, or an error."""
        return response_line(outcome.id, outcome.result)


def _open(make: type[_Lines], target: TextTarget, table: Table) -> AbstractContextManager[RowWriter]:
    return nullcontext(make(target))


JSONL = OutputFormat("jsonl", (".jsonl", ".ndjson"), lines=partial(_open, _Lines))
OPENAI = OutputFormat("openai", lines=partial(_open, _OpenAILines))
