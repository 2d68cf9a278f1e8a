"""Readers of input files, one for each format; each yields records.

JSON arrays are split while they are read, so an invalid element does not affect the others.
"""

from __future__ import annotations

import base64
import csv
import datetime
import decimal
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, BinaryIO

from gencli import json_text as json_reader
from gencli.batch.batch_records import Failure
from gencli.errors import UsageError
from gencli.helpers import counted
from gencli.json_text import DocumentError, JsonLimits

INSTALL = "Install it with: pip install 'gencli[batch]'"


def need_pyarrow(name: str) -> None:
    """Raise UsageError with the install command if pyarrow is missing; `name` is the file that needs it."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"{name} needs pyarrow, which is not installed.", hint=INSTALL)


MAX_BYTES = 16 * 2**20  # bytes of one record
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

Item = tuple[int, Mapping[str, Any] | Failure]  # line number of a record's beginning, and its columns
Reader = Callable[[BinaryIO, str], Iterator[Item]]  # takes the file and its name


class TableCell(str):
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
        self.number, self._stream, self._limit = 0, stream, limit

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


LIMITS = JsonLimits(max_depth=100, max_digits=4300, has_decimals=False)


def read_lines(stream: BinaryIO, name: str, *, read: Callable[[bytes], Mapping[str, Any]]) -> Iterator[Item]:
    """Yield the record that `read` makes of each line that is not blank, or its fault."""
    lines = Lines(stream)
    while True:
        try:
            line = next(lines)
            if line.strip():
                yield lines.number, read(line)
        except StopIteration:
            return
        except RecordFault as fault:
            yield lines.number, fault.failure


def parse_record(data: bytes) -> dict[str, Any]:
    """Return the object of a JSON text. Raises RecordFault if it is not an object."""
    text = decode(data.rstrip())
    if text.startswith("\ufeff"):
        raise RecordFault(
            "This line begins with a byte order mark (EF BB BF), which only a file may. "
            "Were files put together with cat? Remove the mark."
        )
    value = parse_json(text)
    if not isinstance(value, dict):
        raise RecordFault(f"A record is a JSON object, but this is {_KINDS[type(value)]}.")
    return value


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, read strictly. Raises RecordFault with the position of a fault."""
    try:
        return json_reader.parse_json(text, LIMITS)
    except DocumentError as error:
        line = f"line {error.line}, " if error.line > 1 else ""
        fault = error.text.removesuffix(".")
        raise RecordFault(f"This is not JSON: {fault}, at {line}column {error.column}.") from None


_KINDS = {
    list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false",
    type(None): "null",
}  # fmt: skip


_CHUNK = 2**16
_MARK = re.compile(rb'["\[\]{},]')
_IN_STRING = re.compile(rb'["\\]')

_Element = tuple[int, bytes | RecordFault]


def read_array(stream: BinaryIO, name: str) -> Iterator[Item]:
    """Yield the records of a JSON array."""
    for line, element in _Splitter(stream).elements():
        try:
            if isinstance(element, RecordFault):
                raise element
            yield line, parse_record(element)
        except RecordFault as fault:
            yield line, fault.failure


class _Splitter:
    """Splits an array into elements; yields for each its first line number, and its bytes or its fault."""

    def __init__(self, stream: BinaryIO, limit: int = MAX_BYTES) -> None:
        self._stream, self._limit = stream, limit
        self._pieces: list[bytes] = []
        self._line = self._depth = 1
        self._size = self._num_elements = 0
        self._in_string = self._is_escaped = False

    def elements(self) -> Iterator[_Element]:
        """Yield the elements in order; a missing end, or text after the end, is a further fault."""
        chunk = self._opened()
        while chunk:
            start = 0
            for at, mark in self._marks(chunk):
                if mark == b"," and self._depth > 1:
                    continue
                self._keep(chunk[start:at])
                start = at + 1
                has_text = self._size > self._limit or bool(b"".join(self._pieces).strip())
                if mark == b"," or self._num_elements or has_text:
                    yield self._taken()
                if mark != b",":
                    yield from self._behind(chunk[start:])
                    return
            self._keep(chunk[start:])
            chunk = self._stream.read(_CHUNK)
        yield self._taken()[0], RecordFault("The array has no end; the file may be cut off here.")

    def _opened(self) -> bytes:
        """Return the first chunk, from after the opening bracket."""
        chunk = self._stream.read(_CHUNK).removeprefix(_BOM)
        while chunk and not chunk.strip():
            self._line += chunk.count(b"\n")
            chunk = self._stream.read(_CHUNK)
        bare = chunk.lstrip()
        if not bare.startswith(b"["):
            raise Unfit("is not a JSON array. If it has one object per line, use `input_format` = jsonl")
        self._line += chunk[: len(chunk) - len(bare)].count(b"\n")
        return bare[1:] or self._stream.read(_CHUNK)

    def _marks(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the positions of commas outside of strings, and of the bracket that closes the array."""
        at = 0
        while True:
            if self._is_escaped and at < len(chunk):
                at, self._is_escaped = at + 1, False
            match = (_IN_STRING if self._in_string else _MARK).search(chunk, at)
            if not match:
                return
            at, mark = match.end(), match.group()
            if mark == b"\\":
                self._is_escaped = True
            elif mark == b'"':
                self._in_string = not self._in_string
            elif mark in b"[{":
                self._depth += 1
            elif mark in b"]}":
                self._depth -= 1
                if not self._depth:
                    yield match.start(), mark
            else:
                yield match.start(), mark

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
        else:
            self._line += sum(part.count(b"\n") for part in (*self._pieces, piece))
            self._pieces.clear()

    def _taken(self) -> _Element:
        data = b"".join(self._pieces)
        bare = data.lstrip()
        line = self._line + data[: len(data) - len(bare)].count(b"\n")
        self._line += data.count(b"\n")
        is_long = self._size > self._limit
        self._pieces.clear()
        self._size = 0
        self._num_elements += 1
        return line, too_long() if is_long else bare

    def _behind(self, chunk: bytes) -> Iterator[_Element]:
        while chunk:
            if chunk.strip():
                yield self._line, RecordFault("There is text after the end of the array.")
                return
            chunk = self._stream.read(_CHUNK)


def read_table(stream: BinaryIO, name: str, *, delimiter: str) -> Iterator[Item]:
    """Yield the records of a table; values are of type TableCell."""
    csv.field_size_limit(MAX_BYTES)  # the module's own limit, 128 KiB, is smaller than some documents
    lines = Lines(stream)
    # Bytes that are not UTF-8 become surrogates, so that only their row is rejected.
    texts = map(partial(bytes.decode, errors="surrogateescape"), lines)
    rows = csv.reader(texts, delimiter=delimiter, strict=True)
    try:
        header = _header(next(rows, []), delimiter)
    except (csv.Error, RecordFault, UnicodeError) as error:
        raise Unfit(f"has no readable header: {error}") from None
    while True:
        start = lines.number + 1
        try:
            cells = next(rows)
            if cells:
                yield start, dict(zip(header, _checked(cells, header), strict=True))
        except StopIteration:
            return
        except csv.Error as error:
            yield start, RecordFault(f"This is not a row of a table: {error}.").failure
        except RecordFault as fault:
            yield start, fault.failure


def _header(names: list[str], delimiter: str) -> list[str]:
    if not names:
        raise Unfit("is empty: a table begins with the names of its columns")
    "".join(names).encode()  # raises UnicodeError for bytes that were not UTF-8
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Unfit(f"has the column {twice[0]!r} more than once. Rename one of them")
    if len(names) == 1 and delimiter == "," and ";" in names[0]:
        raise Unfit("has its columns separated by semicolons, not commas. Use `delimiter` = ';'")
    return names


def _checked(cells: list[str], header: list[str]) -> list[TableCell]:
    if len(cells) != len(header):
        have = counted(len(cells), "cell")
        raise RecordFault(f"The row has {have}, the header {len(header)}. A cell with commas needs quotes.")
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        raise RecordFault("The row holds bytes that are not UTF-8 text.") from None
    return [TableCell(cell) for cell in cells]


_ROWS = 1000


def read_parquet(stream: BinaryIO, name: str) -> Iterator[Item]:
    """Yield the records of a Parquet file in a seekable stream; the row number serves as line number."""
    need_pyarrow(name)
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(stream)
    except pa.ArrowInvalid as error:
        raise Unfit(f"is not a readable Parquet file: {str(error).rstrip('.')}") from None
    rows = (row for batch in file.iter_batches(_ROWS, use_threads=False) for row in batch.to_pylist())
    for number, row in enumerate(rows, start=1):
        yield number, _plain(row)


def _plain(value: Any) -> Any:
    """Return a value as JSON: times and decimals as text, bytes in base64, NaN and infinities as null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, decimal.Decimal | datetime.timedelta) else value


def read_paragraphs(stream: BinaryIO, name: str) -> Iterator[Item]:
    """Yield a record for each paragraph; paragraphs are separated by empty lines."""
    lines, line = Lines(stream), b"\n"
    start, data = 0, bytearray()  # of the paragraph so far
    fault: RecordFault | None = None  # the first one in it
    while line:
        try:
            line = next(lines, b"")
        except RecordFault as error:
            start, fault = start or lines.number, fault or error
            continue
        if line.strip():
            start = start or lines.number
            data += b"" if fault else line
            fault = fault or (too_long() if len(data) > MAX_BYTES else None)
            continue
        try:
            if fault:
                raise fault
            if data:
                yield start, {"prompt": _bare(bytes(data))}
        except RecordFault as error:
            yield start, error.failure
        start, fault = 0, None
        data.clear()


def read_document(stream: BinaryIO, name: str) -> Iterator[Item]:
    """Yield one record: the text without a newline at its end, and the file's name as `file`."""
    data = stream.read(MAX_BYTES + 1).removeprefix(_BOM)
    try:
        if len(data) > MAX_BYTES:
            raise too_long()
        if data.strip():
            yield 1, {"prompt": _bare(data), "file": name}
    except RecordFault as fault:
        yield 1, fault.failure


def _bare(data: bytes) -> str:
    return decode(data).removesuffix("\n").removesuffix("\r")


READERS: Mapping[str, Reader] = {
    "jsonl": partial(read_lines, read=parse_record),
    "json": read_array,
    "csv": partial(read_table, delimiter=","),
    "tsv": partial(read_table, delimiter="\t"),
    "parquet": read_parquet,
    "lines": partial(read_lines, read=lambda line: {"prompt": _bare(line)}),
    "paragraphs": read_paragraphs,
    "document": read_document,
}
SUFFIXES: Mapping[str, str] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "lines",
}
