"""Output formats: the requirements of each on its file, and how its writer is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias

from gencli.batch.records import Outcome
from gencli.batch.survey import Kind

__all__ = [
    "ListOf",
    "OpenFile",
    "OpenFolder",
    "OpenLines",
    "OutputFormat",
    "RowWriter",
    "StructOf",
    "Table",
    "TextTarget",
    "Type",
]


@dataclass(frozen=True, slots=True)
class ListOf:
    """The type of lists whose items have one type."""

    item: Type


@dataclass(frozen=True, slots=True)
class StructOf:
    """The type of objects with these fields, each with its type."""

    fields: tuple[tuple[str, Type], ...]


Type: TypeAlias = "Kind | Literal['json'] | ListOf | StructOf"  # json: a value of any type, as JSON text


class TextTarget(Protocol):
    """Interface of a file or stream that takes text."""

    def write(self, text: str, /) -> object:
        """Write text to the file. Raises OSError, for example for a full disk."""
        ...


class RowWriter(Protocol):
    """Interface of a writer of outcomes, which arrive in output order."""

    def write(self, outcome: Outcome) -> None:
        """Write one outcome in the format: a record, or a row for each sample."""
        ...


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table with their types; `flat` makes the rows of an outcome for these columns."""

    columns: Mapping[str, Type]
    flat: Callable[[Outcome, Mapping[str, Type]], Iterator[dict[str, Any]]]

    def rows(self, outcome: Outcome) -> Iterator[dict[str, Any]]:
        """Yield the rows of an outcome: the value of each column, by name."""
        return self.flat(outcome, self.columns)


OpenLines = Callable[[TextTarget, Table], AbstractContextManager[RowWriter]]
OpenFile = Callable[[BinaryIO, Table], AbstractContextManager[RowWriter]]
OpenFolder = Callable[[Path], AbstractContextManager[RowWriter]]


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """An output format, and the file suffixes that select it.

    One of three functions opens its writer. `lines` writes text, also to stdout and compressed files; `file`
    writes bytes to a file; `folder` writes files into a folder. `lines` and `file` take the columns of a
    table, which `is_table` writes.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    lines: OpenLines | None = None
    file: OpenFile | None = None
    folder: OpenFolder | None = None
    needs_pyarrow: bool = False
    is_table: bool = False
