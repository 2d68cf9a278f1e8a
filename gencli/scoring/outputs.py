"""Output formats of scores: lines for a person, and the columns of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gencli.batch.outputs.base import RowWriter, Table, TextTarget, Type
from gencli.batch.outputs.columns import as_cell
from gencli.batch.records import Outcome
from gencli.batch.survey import Kind
from gencli.scoring.totals import shown

__all__ = ["COLUMNS", "open_text", "score_table"]

COLUMNS: Mapping[str, Kind] = {
    "index": "integer",
    "id": "text",
    "group": "text",
    "choice": "integer",  # counted from 0
    "text": "text",
    "tokens": "integer",
    "scored": "integer",
    "banned": "integer",
    "bytes": "integer",
    "words": "integer",
    "logprob": "number",
    "nll": "number",
    "perplexity": "number",
    "perplexity_error": "number",
    "word_perplexity": "number",
    "byte_perplexity": "number",
    "bits_per_byte": "number",
    "per_token": "number",
    "per_character": "number",
    "per_byte": "number",
    "greedy": "boolean",
    "unconditional": "number",
    "prob": "number",
    "best": "text",  # the measures by which the choice is the best
    "token_scores": "text",
    "convention": "text",
    "mode": "text",
    "error_type": "text",
    "error_message": "text",
}
_INPUT = "input."
_HEAD = ("id", "tokens", "logprob", "perplexity", "bits/byte", "best or greedy")


def score_table(kept: Mapping[str, Kind], *, has_groups: bool, has_tokens: bool) -> Table:
    """Return the table of scores: a row for each text, continuation or choice."""
    hidden = {*([] if has_groups else ["group"]), *([] if has_tokens else ["token_scores"])}
    columns = {name: kind for name, kind in COLUMNS.items() if name not in hidden}
    return Table({**columns, **{_INPUT + name: kind for name, kind in kept.items()}}, _flat)


def _flat(outcome: Outcome, columns: Mapping[str, Type]) -> Iterator[dict[str, Any]]:
    result = outcome.result
    error = result.get("error") or {}
    shared = {
        **{key: value for key, value in result.items() if key not in ("choices", "best", "error")},
        "index": outcome.index,
        "id": outcome.id,
        "banned": None if error else 0,
        "error_type": error.get("type"),
        "error_message": error.get("message"),
        **{_INPUT + name: value for name, value in (result.get("input") or {}).items()},
    }
    if "choices" in result:
        rows = [
            {**shared, **row, "choice": number, "best": _measures(result["best"], number)}
            for number, row in enumerate(result["choices"])
        ]
    else:
        rows = [{**shared, **({"banned": result["banned"]} if "banned" in result else {})}]
    for row in rows:
        yield {name: as_cell(kind, row.get(name)) for name, kind in columns.items()}


def _measures(best: Mapping[str, int | None], number: int) -> str | None:
    return " ".join(name for name, index in best.items() if index == number) or None


class _Lines:
    """Writes a line for each row, in columns of fixed width."""

    def __init__(self, target: TextTarget) -> None:
        self._target, self._is_begun = target, False

    def write(self, outcome: Outcome) -> None:
        """Write the row's line; before the first one the column names."""
        if not self._is_begun:
            self._is_begun = True
            self._put(_HEAD)
        self._put(_cells(outcome))

    def _put(self, cells: tuple[str, ...]) -> None:
        widths = (15, 7, 12, 12, 10)
        padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False)]
        self._target.write("  ".join([*padded, *cells[len(widths) :]]).rstrip() + "\n")


def _cells(outcome: Outcome) -> tuple[str, ...]:
    result, name = outcome.result, outcome.id
    if "error" in result:
        return (name, "", "", "", "", f"error: {result['error']['message']}")
    if "choices" in result:
        best = ", ".join(f"{key} {'-' if index is None else index}" for key, index in result["best"].items())
        return (name, "", "", "", "", best)
    banned = result.get("banned")
    last = f"{banned} banned" if banned else ""
    if not banned and "greedy" in result:
        last = "greedy" if result["greedy"] else "not greedy"
    numbers = (shown(result[key]) for key in ("logprob", "perplexity", "bits_per_byte"))
    return (name, str(result["scored"] + (banned or 0)), *numbers, last)


def open_text(lines: Callable[[], Iterator[str]]) -> Callable[[TextTarget, Table], Any]:
    """Return a function that opens a writer of lines; `lines` are written after all rows."""

    @contextmanager
    def opened(target: TextTarget, _: Table) -> Iterator[RowWriter]:
        yield _Lines(target)
        for line in lines():
            target.write(line + "\n")

    return opened
