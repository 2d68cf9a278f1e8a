"""Parquet: typed columns, in groups of 10,000 rows, because the footer grows with the number of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from gencli.batch.outputs.base import OutputFormat, RowWriter, Table
from gencli.batch.records import Outcome
from gencli.batch.survey import Kind

__all__ = ["PARQUET"]

_ROWS = 10_000
_TYPES: Mapping[Kind, str] = {"boolean": "bool_", "integer": "int64", "number": "float64", "text": "string"}


class _ParquetRows:
    """Collects rows into groups; `flush` writes the last group."""

    def __init__(self, writer: Any, schema: Any, table: Table) -> None:
        self._writer, self._schema, self._table = writer, schema, table
        self._rows: list[dict[str, Any]] = []

    def write(self, outcome: Outcome) -> None:
        """Add the rows of the outcome; write the group if it is full."""
        self._rows.extend(self._table.rows(outcome))
        if len(self._rows) >= _ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the collected rows."""
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows.clear()


@contextmanager
def _open(file: BinaryIO, table: Table) -> Iterator[RowWriter]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    schema = pa.schema([(name, getattr(pa, _TYPES[kind])()) for name, kind in table.columns.items()])
    with ParquetWriter(file, schema) as writer:
        rows = _ParquetRows(writer, schema, table)
        yield rows
        rows.flush()


PARQUET = OutputFormat("parquet", (".parquet", ".pq"), file=_open, needs_pyarrow=True)
