"""The data of a batch: records of the input, rows made of them, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gencli.errors import GencliError, UsageError
from processors.errors import ProcessorsError

__all__ = ["ColumnError", "Failure", "Outcome", "Record", "Row"]


class ColumnError(UsageError):
    """A missing or unknown column: the column names are wrong, not their values."""

    is_of_columns = True


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a row has no result: type and message of the error.

    `is_of_columns`: the names of the record's columns are wrong, not their values.
    """

    type: str
    message: str
    is_of_columns: bool = False

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Return the failure of an exception; an unexpected exception is reported as a bug."""
        if isinstance(error, GencliError | ProcessorsError):
            kind = UsageError if isinstance(error, UsageError) else type(error)
            message = f"{error} {getattr(error, 'hint', '')}".strip()
            return cls(kind.__name__, message, getattr(error, "is_of_columns", False))
        name = type(error).__name__
        return cls(name, f"Unexpected {name}: {error}. This is a fault of gencli, or of a plug-in.")


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the input: its index over all files, its position and its columns.

    A line that cannot be read has a `failure` and no columns; later records are not affected.
    """

    index: int
    place: str  # file and line, for messages
    columns: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The request of a record: id, prompt or messages, and the options that it sets.

    `scored`: columns to score instead of a prompt (see gencli.scoring.items).
    """

    record: Record
    id: str
    prompt: str | None = None
    messages: tuple[Mapping[str, str], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    scored: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished row; `result` is a record in the form of `gencli run` with `format` = json.

    A failed row has an `error`, and other fields if known. `read`: prompt tokens fed to the model. `copied`:
    prompt tokens from the prefix cache. The output omits both, because they depend on the other rows.
    `trace`: lines of the row's trace.
    """

    index: int
    id: str
    result: Mapping[str, Any]
    is_error: bool = False
    read: int = 0
    copied: int = 0
    trace: str = ""
