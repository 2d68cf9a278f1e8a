"""CSV and TSV: a header, and a row for each sample."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import partial

from gencli.batch.outputs.base import OutputFormat, TextTarget
from gencli.batch.outputs.columns import flat, table_columns
from gencli.batch.records import Outcome
from gencli.batch.survey import Kind

__all__ = ["CSV", "TSV"]


class _TableLines:
    """Writes a table; `kept` are columns of the input. Null is an empty cell."""

    def __init__(self, target: TextTarget, kept: Mapping[str, Kind], *, delimiter: str) -> None:
        self._columns = table_columns(kept)
        self._writer = csv.writer(_Newlines(target), delimiter=delimiter)
        self._writer.writerow(self._columns)

    def write(self, outcome: Outcome) -> None:
        """Write a row for each sample."""
        for row in flat(outcome, self._columns):
            self._writer.writerow([_cell(value) for value in row.values()])


class _Newlines:
    """Ends rows with a newline; csv writes CR LF, because only then it quotes a carriage return."""

    def __init__(self, target: TextTarget) -> None:
        self._target = target

    def write(self, row: str) -> object:
        return self._target.write(row.removesuffix("\r\n") + "\n")


def _cell(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


CSV = OutputFormat("csv", (".csv",), lines=partial(_TableLines, delimiter=","))
TSV = OutputFormat("tsv", (".tsv",), lines=partial(_TableLines, delimiter="\t"))
