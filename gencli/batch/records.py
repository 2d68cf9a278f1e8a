"""What goes through a batch: a record of the input, the row made of it, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gencli.errors import GencliError, UsageError
from processors.errors import ProcessorsError

__all__ = ["ColumnError", "Failure", "Outcome", "Record", "Row"]


class ColumnError(UsageError):
    """A column that a record lacks, or that means nothing: the names are wrong, whatever the values."""

    is_of_columns = True


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a row has no result: the type of the error and its message.

    `is_of_columns` says that the names of the record's columns are at fault, and not their values.
    """

    type: str
    message: str
    is_of_columns: bool = False

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Of an exception; one that is not ours is a fault, but of this row alone."""
        if isinstance(error, GencliError | ProcessorsError):
            kind = UsageError if isinstance(error, UsageError) else type(error)
            message = f"{error} {getattr(error, 'hint', '')}".strip()
            return cls(kind.__name__, message, getattr(error, "is_of_columns", False))
        name = type(error).__name__
        return cls(name, f"Unexpected {name}: {error}. This is a fault of gencli, or of a plug-in.")


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the input: its index over all files, where it stands, and its columns.

    A line that cannot be read has a `failure` in place of columns; the records after it are not touched.
    """

    index: int
    place: str  # file and line, for messages
    columns: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """What is generated for a record: its id, the prompt or messages, and the options that it overrides."""

    record: Record
    id: str
    prompt: str | None = None
    messages: tuple[Mapping[str, str], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished row as it is written: `result` holds the fields of `gencli run --format json`.

    A failed row has the same fields as far as they are known, and an `error`. Of its prompt's tokens `read`
    were fed to the model and `copied` were in memory, from another prompt that begins alike; samples share
    the prompt. That is not written, since it depends on the neighbours.
    """

    index: int
    id: str
    result: Mapping[str, Any]
    is_error: bool = False
    read: int = 0
    copied: int = 0
