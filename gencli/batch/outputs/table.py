"""CSV and TSV: a header, and a row for each sample."""

from __future__ import annotations

import csv
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from gencli.batch.outputs.base import OutputFormat, RowWriter, Table, TextTarget
from gencli.batch.records import Outcome
from gencli.json_text import to_json

__all__ = ["CSV", "TSV"]


class _TableLines:
    """Writes a table. Null is an empty cell."""

    def __init__(self, target: TextTarget, table: Table, *, delimiter: str) -> None:
        self._table = table
        self._writer = csv.writer(_Newlines(target), delimiter=delimiter)
        self._writer.writerow(table.columns)

    def write(self, outcome: Outcome) -> None:
        """Write a row for each sample."""
        for row in self._table.rows(outcome):
            self._writer.writerow([_cell(value) for value in row.values()])


class _Newlines:
    """Ends rows with LF. csv writes CR LF, because only then it quotes a carriage return."""

    def __init__(self, target: TextTarget) -> None:
        self._target = target

    def write(self, row: str) -> object:
        return self._target.write(row.removesuffix("\r\n") + "\n")


def _cell(value: object) -> object:
    if isinstance(value, list | dict):
        return to_json(value)
    return str(value).lower() if isinstance(value, bool) else value


def _open(target: TextTarget, table: Table, *, delimiter: str) -> AbstractContextManager[RowWriter]:
    return nullcontext(_TableLines(target, table, delimiter=delimiter))


CSV = OutputFormat("csv", (".csv",), lines=partial(_open, delimiter=","), is_table=True)
TSV = OutputFormat("tsv", (".tsv",), lines=partial(_open, delimiter="\t"), is_table=True)
