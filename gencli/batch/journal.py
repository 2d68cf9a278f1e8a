"""The journal of a batch: a header, then a line for each finished row.

It survives the end of the process at any time: each line is appended with one write, so only the last line
can be incomplete, and is then dropped. Each line ends with a checksum. A row takes 17 bytes of memory.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gencli.batch.records import Outcome, Row
from gencli.errors import GenerationError, UsageError
from gencli.files import NO_LINK, open_regular
from gencli.json_text import as_float

__all__ = ["VERSION", "Journal", "journal_path", "read_header"]

VERSION = 2  # version 1 had no checksums
_KEY = "gencli_journal"
_CHECK = b', "check": '
_TRACED = "traced"
_MAX_HEADER = 2**24  # bytes of a header
_BINARY = getattr(os, "O_BINARY", 0)


def journal_path(output: Path) -> Path:
    """Return the path of an output's journal, in the same folder."""
    return output.with_name(f"{output.name}.journal")


def read_header(path: Path) -> dict[str, Any] | None:
    """Return the header of a journal; None if it is empty. Raises UsageError for another kind of file."""
    try:
        with open_regular(path) as file:
            line = file.readline(_MAX_HEADER)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    if not line.endswith(b"\n"):  # the process was killed before the first row
        return None
    header = None
    with suppress(ValueError, RecursionError):
        header = json.loads(line)
    if not isinstance(header, dict) or not isinstance(version := header.get(_KEY), int):
        raise UsageError(f"{path} is not a journal of a batch.", hint="`overwrite` starts a new run.")
    if version != VERSION:
        raise UsageError(
            f"{path} is a journal of version {version}, and this gencli has version {VERSION}: its rows "
            f"{'have no checksums' if version < VERSION else 'are of a later gencli'}.",
            hint="Finish it with the version that started it, or start a new run with `overwrite`.",
        )
    return _checked(line, f"{path} is damaged in line 1")


def _sealed(entry: Mapping[str, Any]) -> bytes:
    """Return the line of an entry: a JSON object whose last member is the checksum of the others."""
    data = json.dumps(entry, default=as_float).encode().removesuffix(b"}")
    return data + _CHECK + _checksum(data) + b"}\n"


def _checked(line: bytes, fault: str) -> dict[str, Any]:
    """Return the entry of a line. Raises UsageError that begins with `fault` for a wrong checksum."""
    data, _, check = line.rpartition(_CHECK)
    if check != _checksum(data) + b"}\n":
        raise UsageError(f"{fault}: its checksum is wrong.", hint="`overwrite` starts a new run.")
    entry: dict[str, Any] = json.loads(data + b"}")
    return entry


def _checksum(data: bytes) -> bytes:
    return b'"%s"' % blake2b(data, digest_size=8).hexdigest().encode()


class Journal:
    """Appends outcomes of rows and reads them back; the last outcome of a row is the valid one.

    `traced`: number of bytes of the trace that belong to the rows present at opening.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """Open a journal, or create one with this header; an incomplete last line is removed."""
        self.path, self.traced = path, 0
        self._rows, self._offsets, self._failed = array("q"), array("q"), bytearray()
        is_old = read_header(path) is not None
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_LINK | _BINARY | (0 if is_old else os.O_TRUNC)
        try:
            self._handle = os.open(path, flags, 0o644)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
        self._size = self._scanned() if is_old else 0
        if is_old:
            os.ftruncate(self._handle, self._size)
        else:
            self._write({_KEY: VERSION, **header})

    def close(self) -> None:
        """Flush the journal to the disk and close it."""
        if self._handle >= 0:
            with suppress(OSError):
                os.fsync(self._handle)
            os.close(self._handle)
            self._handle = -1

    def remove(self) -> None:
        """Close and delete the journal."""
        self.close()
        self.path.unlink()

    def append(self, outcome: Outcome, *, traced: int | None = None) -> None:
        """Append a row; `traced`: size in bytes of the trace including the row's lines.

        Raises GenerationError if the write fails; earlier rows are safe.
        """
        place, size = self._size, {} if traced is None else {_TRACED: traced}
        self._write(
            {
                "row": outcome.index,
                "failed": outcome.is_error,
                "id": outcome.id,
                **size,
                "result": outcome.result,
            }
        )
        self._note(outcome.index, place, outcome.is_error)

    def _write(self, entry: Mapping[str, Any]) -> None:
        data = _sealed(entry)
        reason = "only a part of a row was written"
        try:
            written = os.write(self._handle, data)
        except OSError as error:
            written, reason = 0, error.strerror or str(error)
        if written == len(data):
            self._size += written
            return
        with suppress(OSError):
            os.ftruncate(self._handle, self._size)
        raise GenerationError(
            f"{self.path} cannot be written: {reason}.",
            hint="The rows in it are safe; `resume` continues the run.",
        )

    def _scanned(self) -> int:
        """Index all rows; return the size in bytes without an incomplete last line."""
        with self.path.open("rb") as file:
            place = len(file.readline())
            for number, line in enumerate(file, start=2):
                if not line.endswith(b"\n"):
                    break
                entry = _checked(line, f"{self.path} is damaged in line {number}")
                self._note(entry["row"], place, entry["failed"])
                self.traced = entry.get(_TRACED, self.traced)
                place += len(line)
        return place

    def _note(self, row: int, place: int, is_failed: bool) -> None:
        self._rows.append(row)
        self._offsets.append(place)
        self._failed.append(is_failed)

    def _latest(self) -> NDArray[np.int64]:
        """Return the positions of the last entry of each row, ordered by row, int64 [number of rows]."""
        rows = np.array(self._rows, dtype=np.int64)
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        is_last = np.ones(len(rows), dtype=bool)
        is_last[:-1] = ordered[1:] != ordered[:-1]
        latest: NDArray[np.int64] = order[is_last]
        return latest

    def counts(self) -> tuple[int, int]:
        """Return the number of finished rows, and how many of them failed."""
        latest = self._latest()
        return len(latest), int(np.frombuffer(self._failed, dtype=np.uint8)[latest].sum())

    def pending(self, rows: Iterable[Row], *, with_failed: bool = False) -> Iterator[Row]:
        """Yield the rows that are not finished; with `with_failed` also failed ones. Rows have to ascend.

        Rows appended during the iteration are not noticed.
        """
        latest = self._latest()
        if with_failed:
            latest = latest[np.frombuffer(self._failed, dtype=np.uint8)[latest] == 0]
        finished = iter(array("q", np.array(self._rows, dtype=np.int64)[latest].tobytes()))
        head = next(finished, None)
        for row in rows:
            while head is not None and head < row.record.index:
                head = next(finished, None)
            if head != row.record.index:
                yield row

    def outcomes(self, *, by_row: bool = True) -> Iterator[Outcome]:
        """Yield all outcomes, in the order of the input or of completion."""
        places = np.array(self._offsets, dtype=np.int64)[self._latest()]
        with self.path.open("rb") as file:
            for place in places if by_row else np.sort(places):
                file.seek(place)
                entry = _checked(file.readline(), f"{self.path} is damaged at byte {place}")
                yield Outcome(entry["row"], entry["id"], entry["result"], entry["failed"])
