"""Parquet: typed columns, in groups of 10,000 rows, because the footer grows with the number of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from gencli.batch.outputs.base import ListOf, OutputFormat, RowWriter, StructOf, Table, Type
from gencli.batch.records import Outcome

__all__ = ["PARQUET"]

_ROWS = 10_000
_TYPES: Mapping[Type, str] = {
    "boolean": "bool_",
    "integer": "int64",
    "number": "float64",
    "text": "string",
    "json": "string",
}


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


def _stored(kind: Type) -> Any:
    """Return the type of pyarrow."""
    import pyarrow as pa

    if isinstance(kind, ListOf):
        return pa.list_(_stored(kind.item))
    if isinstance(kind, StructOf):
        return pa.struct([(name, _stored(field)) for name, field in kind.fields])
    return getattr(pa, _TYPES[kind])()


@contextmanager
def _open(file: BinaryIO, table: Table) -> Iterator[RowWriter]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    schema = pa.schema([(name, _stored(kind)) for name, kind in table.columns.items()])
    with ParquetWriter(file, schema) as writer:
        rows = _ParquetRows(writer, schema, table)
        yield rows
        rows.flush()


PARQUET = OutputFormat("parquet", (".parquet", ".pq"), file=_open, needs_pyarrow=True, is_table=True)
