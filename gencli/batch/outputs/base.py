"""Forms of results: what each needs of its file, and how its writer is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from gencli.batch.records import Outcome
from gencli.batch.survey import Kind

__all__ = ["OpenFile", "OpenFolder", "OpenLines", "OutputFormat", "RowWriter", "TextTarget"]


class TextTarget(Protocol):
    """A file or stream that takes text."""

    def write(self, text: str, /) -> object:
        """Write the text."""
        ...


class RowWriter(Protocol):
    """Writer of outcomes, which come in the order of the output."""

    def write(self, outcome: Outcome) -> None:
        """Write one row."""
        ...


OpenLines = Callable[[TextTarget, Mapping[str, Kind]], RowWriter]
OpenFile = Callable[[BinaryIO, Mapping[str, Kind]], AbstractContextManager[RowWriter]]
OpenFolder = Callable[[Path], AbstractContextManager[RowWriter]]


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A form of results, with the file suffixes that stand for it.

    One of three functions opens its writer. `lines` writes text, also to stdout and to packed files; `file`
    writes bytes to a file; `folder` writes files into a folder. The mapping that `lines` and `file` take
    holds the columns of the input that a table has too, and their kinds.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    lines: OpenLines | None = None
    file: OpenFile | None = None
    folder: OpenFolder | None = None
    needs_pyarrow: bool = False
