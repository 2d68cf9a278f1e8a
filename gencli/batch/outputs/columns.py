"""Results as rows of a table: one row for each sample, all with the same columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gencli.batch.outputs.base import Table, Type
from gencli.batch.records import Outcome
from gencli.batch.samples import samples_of
from gencli.batch.survey import Kind
from gencli.json_text import to_json

if TYPE_CHECKING:
    from gencli.batch.outputs.documents import DocumentColumns

__all__ = ["COLUMNS", "IDS", "INPUT", "SCORES", "as_cell", "generated", "of_result"]

COLUMNS: Mapping[str, Kind] = {
    "index": "integer",
    "id": "text",
    "sample": "integer",  # counted from 1
    "prompt": "text",
    "text": "text",
    "finish_reason": "text",
    "matched": "text",
    "prompt_tokens": "integer",
    "completion_tokens": "integer",
    "seed": "text",  # up to 2**64 - 1, too large for signed integers
    "error_type": "text",
    "error_message": "text",
}
SCORES = ("logprobs", "prompt_logprobs")  # columns, as JSON, of tables whose rows request them
IDS = ("token_ids", "prompt_token_ids")  # columns, as JSON, of tables with `token_ids`
INPUT = "input."  # before the name of a kept column
_OF_PROMPT = ("prompt", "prompt_tokens", "seed", "prompt_logprobs", "prompt_token_ids")
_RESULT = "\0"


def of_result(name: str) -> str:
    """Return the key under which `generated` expects a column `name` of the result.

    Keys without this prefix are columns of the input, named `input.NAME` in the table.
    """
    return _RESULT + name


def generated(kept: Mapping[str, Kind] | None = None, *, documents: DocumentColumns | None = None) -> Table:
    """Return the table of generated texts: its columns, of documents, and of kept input as `input.NAME`."""
    known = (kept or {}).items()
    more = {name if name.startswith(_RESULT) else INPUT + name: kind for name, kind in known}
    columns: dict[str, Type] = {**COLUMNS, **(documents.types if documents else {})}
    columns |= {name.removeprefix(_RESULT): kind for name, kind in more.items()}
    return Table(columns, partial(_flat, documents=documents))


def _flat(
    outcome: Outcome, columns: Mapping[str, Type], documents: DocumentColumns | None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a result; values other than text become JSON in text columns."""
    result = outcome.result
    kept = {INPUT + name: value for name, value in (result.get("input") or {}).items()}
    for number, sample in enumerate(samples_of(result), start=1):
        error = sample["error"] or {}
        values = {
            **{name: result.get(name) for name in _OF_PROMPT},
            **{name: value for name, value in sample.items() if name in (*COLUMNS, "logprobs", "token_ids")},
            "index": outcome.index,
            "id": outcome.id,
            "sample": number,
            "error_type": error.get("type"),
            "error_message": error.get("message"),
            **kept,
            **dict(documents.cells(outcome.index, sample["parsed"]) if documents and not error else ()),
        }
        yield {name: as_cell(kind, values.get(name)) for name, kind in columns.items()}


def as_cell(kind: Type, value: Any) -> Any:
    """Return the value for a column of this kind; other values become JSON in text columns."""
    if value is None or kind != "text":
        return value
    return str(value) if isinstance(value, str) else to_json(value)
