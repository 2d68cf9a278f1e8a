"""Parts shared by the readers: lines of limited length, faults of records and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from gencli.batch.records import Failure

__all__ = ["MAX_BYTES", "Cell", "Item", "Lines", "Reader", "RecordFault", "Unfit", "decode", "too_long"]

MAX_BYTES = 16 * 2**20  # bytes of one record
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

Item = tuple[int, Mapping[str, Any] | Failure]  # line number of a record's beginning, and its columns
Reader = Callable[[BinaryIO, str], Iterator[Item]]  # takes the file and its name


class Cell(str):
    """A cell of a table: text that may mean a number, a boolean or a list."""

    __slots__ = ()


class RecordFault(Exception):
    """A record cannot be read; later ones can."""

    @property
    def failure(self) -> Failure:
        """The failure that replaces the record."""
        return Failure("InputError", str(self))


class Unfit(Exception):
    """A file does not have the expected format."""


def too_long(limit: int = MAX_BYTES) -> RecordFault:
    """Return the fault of a record that exceeds the limit in bytes."""
    return RecordFault(f"The record is longer than the limit of {limit / 2**20:g} MiB.")


def decode(data: bytes) -> str:
    """Return UTF-8 text. Raises RecordFault with the first invalid byte."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RecordFault(
            f"This is not UTF-8 text: byte 0x{data[error.start]:02x} at offset {error.start} of the line."
        ) from None


class Lines:
    """The lines of a file, with their newlines. A line over the size limit is skipped and raises RecordFault.

    `number` is the number of the last line, from 1. A byte order mark is dropped; UTF-16 raises Unfit.
    """

    def __init__(self, stream: BinaryIO, limit: int = MAX_BYTES) -> None:
        self.number = 0
        self._stream = stream
        self._limit = limit

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> bytes:
        line = self._stream.readline(self._limit + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if self.number == 1:
            if line.startswith(_UTF16):
                raise Unfit("is UTF-16, not UTF-8. Convert it first, for example with iconv")
            line = line.removeprefix(_BOM)
        if len(line) > self._limit:
            while line and not line.endswith(b"\n"):
                line = self._stream.readline(self._limit)
            raise too_long(self._limit)
        return line
