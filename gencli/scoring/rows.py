"""Rows of files as items to score."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gencli.batch.records import Record
from gencli.errors import GencliError, UsageError
from gencli.scoring.items import Item, read_item

__all__ = ["ScoreRow", "read_rows"]

_COLUMNS = ("text", "context", "continuation", "choices", "messages")


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """A row of the input: its index, its id (by default the index), and its item or why it has none."""

    index: int
    id: str
    item: Item | GencliError


def read_rows(records: Iterable[Record]) -> Iterator[ScoreRow]:
    """Yield the rows of records. A column `prompt` is the text of a row without other columns to score."""
    for record in records:
        name = record.columns.get("id")
        shown = str(record.index) if name in (None, "") else str(name)
        try:
            if record.failure:
                raise UsageError(record.failure.message)
            item: Item | GencliError = read_item(_columns(record.columns))
        except GencliError as error:
            item = error
        yield ScoreRow(record.index, shown, item)


def _columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns to score; lists in the cells of a table are JSON."""
    found = {key: columns[key] for key in _COLUMNS if columns.get(key) not in (None, "")}
    if not found and isinstance(columns.get("prompt"), str):
        return {"text": columns["prompt"]}
    for key in ("choices", "messages"):
        if isinstance(found.get(key), str):
            with suppress(ValueError):
                found[key] = json.loads(found[key])
    return found
