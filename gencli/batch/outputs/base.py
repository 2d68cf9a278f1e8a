"""Forms of results: what each needs of its file, and how its writer is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from gencli.batch.records import Outcome
from gencli.batch.survey import Kind

__all__ = ["OpenFile", "OpenFolder", "OpenLines", "OutputFormat", "RowWriter", "Table", "TextTarget"]


class TextTarget(Protocol):
    """A file or stream that takes text."""

    def write(self, text: str, /) -> object:
        """Write text to the file. Raises OSError, such as for a full disk."""
        ...


class RowWriter(Protocol):
    """Writer of outcomes, which come in the order of the output."""

    def write(self, outcome: Outcome) -> None:
        """Write what the format has for one outcome: a record, or a row for each sample."""
        ...


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table with their kinds; `flat` makes the rows of an outcome for these columns."""

    columns: Mapping[str, Kind]
    flat: Callable[[Outcome, Mapping[str, Kind]], Iterator[dict[str, Any]]]

    def rows(self, outcome: Outcome) -> Iterator[dict[str, Any]]:
        """Yield the rows of an outcome: the value of each column, by name."""
        return self.flat(outcome, self.columns)


OpenLines = Callable[[TextTarget, Table], AbstractContextManager[RowWriter]]
OpenFile = Callable[[BinaryIO, Table], AbstractContextManager[RowWriter]]
OpenFolder = Callable[[Path], AbstractContextManager[RowWriter]]


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A form of results, with the file suffixes that stand for it.

    One of three functions opens its writer. `lines` writes text, also to stdout and to packed files; `file`
    writes bytes to a file; `folder` writes files into a folder. `lines` and `file` take the columns that a
    table has.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    lines: OpenLines | None = None
    file: OpenFile | None = None
    folder: OpenFolder | None = None
    needs_pyarrow: bool = False
