"""Converts rows of files to items to score."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from gencli.batch.messages import read_messages
from gencli.batch.records import ColumnError, Record, Row
from gencli.batch.rows import RowOptions, listed, nested_options, prompt_of, read_rows
from gencli.config.jobs import Jobs
from gencli.errors import UsageError
from gencli.scoring.items import read_item
from gencli.scoring.options import CHAIN_KEYS
from gencli.scoring.scores import MODES

__all__ = ["score_rows"]

_SCORED = ("continuation", "choices")  # columns scored after a context
_COLUMNS = ("text", "context", *_SCORED, "messages")


def score_rows(records: Iterable[Record], options: RowOptions, jobs: Jobs, mode: MODES) -> Iterator[Row]:
    """Yield a row for each record; other columns are data, options are in the column `options`."""

    def row(record: Record, name: str) -> Row:
        scored, given = _scored(record.columns, options), nested_options(record.columns)
        read_item(scored)
        _check_options(given, mode)
        messages = read_messages(scored.get("messages"))
        if mode == "processed":
            jobs.job(given, is_chat=bool(messages))
        return Row(record, name, messages=messages, options=given, scored=scored)

    return read_rows(records, options, row)


def _check_options(given: Mapping[str, Any], mode: MODES) -> None:
    for key in given:
        if key not in CHAIN_KEYS | {"seed", "stages"}:
            raise UsageError(f"{key} is no option of a row to score.", hint="Leave it out.")
    if given and mode == "raw":
        raise UsageError(
            f"{next(iter(given))} is for scores under the chain, but these are of the model alone.",
            hint="Set `mode` = processed.",
        )


def _scored(columns: Mapping[str, Any], options: RowOptions) -> dict[str, Any]:
    """Return the columns to score; lists in the cells of a table are JSON.

    A template or prompt column gives the context of a row with a continuation or choices, else the text.
    """
    found = {key: columns[key] for key in _COLUMNS if columns.get(key) not in (None, "")}
    if options.is_data:
        made, found = prompt_of(columns, options), {key: found[key] for key in _SCORED if key in found}
        name = "messages" if isinstance(made, list) else "context" if found else "text"
        found = {name: made, **found}
    elif not found and isinstance(columns.get("prompt"), str):
        return {"text": columns["prompt"]}
    elif not found:
        raise ColumnError(
            f"The row has nothing to score. It has: {listed(columns)}.",
            hint="It needs a column text, or context with continuation or choices, or messages; or set "
            "`prompt_column` or `template`.",
        )
    for key in ("choices", "messages"):
        if isinstance(found.get(key), str):
            with suppress(ValueError):
                found[key] = json.loads(found[key])
    return found
