"""A JSON array of objects, split into elements while it is read; each element is parsed separately.

Splitting follows brackets and strings only, so an invalid element does not affect the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from gencli.batch.formats.base import MAX_BYTES, Item, RecordFault, Unfit, too_long
from gencli.batch.formats.jsonl import parse_record

__all__ = ["read_array"]

_CHUNK = 2**16
_MARK = re.compile(rb'["\[\]{},]')
_IN_STRING = re.compile(rb'["\\]')

_Element = tuple[int, bytes | RecordFault]


def read_array(stream: BinaryIO, name: str) -> Iterator[Item]:
    """Yield the records of a JSON array."""
    for line, found in _Splitter(stream).elements():
        try:
            if isinstance(found, RecordFault):
                raise found
            yield line, parse_record(found)
        except RecordFault as fault:
            yield line, fault.failure


class _Splitter:
    """Splits an array into elements; yields for each its first line number, and its bytes or its fault."""

    def __init__(self, stream: BinaryIO, limit: int = MAX_BYTES) -> None:
        self._stream, self._limit = stream, limit
        self._line = 1
        self._pieces: list[bytes] = []
        self._size = 0
        self._depth = 0
        self._in_string = self._is_escaped = False
        self._num_elements = 0

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
                if mark == b"," or self._num_elements or self._has_text:
                    yield self._taken()
                if mark != b",":
                    yield from self._behind(chunk[start:])
                    return
            self._keep(chunk[start:])
            chunk = self._stream.read(_CHUNK)
        yield self._taken()[0], RecordFault("The array has no end; the file may be cut off here.")

    def _opened(self) -> bytes:
        """Return the first chunk, from after the opening bracket."""
        chunk = self._stream.read(_CHUNK).removeprefix(b"\xef\xbb\xbf")
        while chunk and not chunk.strip():
            self._line += chunk.count(b"\n")
            chunk = self._stream.read(_CHUNK)
        bare = chunk.lstrip()
        if not bare.startswith(b"["):
            raise Unfit("is not a JSON array. If it has one object per line, use `input_format` = jsonl")
        self._line += chunk[: len(chunk) - len(bare)].count(b"\n")
        self._depth = 1
        return bare[1:] or self._stream.read(_CHUNK)

    def _marks(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the positions of commas outside of strings, and of the bracket that closes the array."""
        at = 0
        while True:
            if self._is_escaped and at < len(chunk):
                at, self._is_escaped = at + 1, False
            found = (_IN_STRING if self._in_string else _MARK).search(chunk, at)
            if not found:
                return
            at, mark = found.end(), found.group()
            if mark == b"\\":
                self._is_escaped = True
            elif mark == b'"':
                self._in_string = not self._in_string
            elif mark in b"[{":
                self._depth += 1
            elif mark in b"]}":
                self._depth -= 1
                if not self._depth:
                    yield found.start(), mark
            else:
                yield found.start(), mark

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
        else:
            self._line += sum(part.count(b"\n") for part in (*self._pieces, piece))
            self._pieces.clear()

    @property
    def _has_text(self) -> bool:
        return self._size > self._limit or bool(b"".join(self._pieces).strip())

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

    def _behind(self, rest: bytes) -> Iterator[_Element]:
        while rest:
            if rest.strip():
                yield self._line, RecordFault("There is text after the end of the array.")
                return
            rest = self._stream.read(_CHUNK)
