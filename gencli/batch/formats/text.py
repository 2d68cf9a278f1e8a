"""Plain text: one prompt per line, paragraph or file. Empty prompts are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from gencli.batch.formats.base import MAX_BYTES, Item, Lines, RecordFault, decode, too_long

__all__ = ["read_document", "read_lines", "read_paragraphs"]


def read_lines(stream: BinaryIO, name: str) -> Iterator[Item]:
    """Yield a record for each line, without its newline."""
    lines = Lines(stream)
    while True:
        try:
            line = next(lines)
            if line.strip():
                yield lines.number, {"prompt": _bare(line)}
        except StopIteration:
            return
        except RecordFault as fault:
            yield lines.number, fault.failure


def read_paragraphs(stream: BinaryIO, name: str) -> Iterator[Item]:
    """Yield a record for each paragraph; paragraphs are separated by empty lines."""
    lines = Lines(stream)
    paragraph = _Paragraph()
    while True:
        try:
            line = next(lines)
            if line.strip():
                paragraph.add(lines.number, line)
                continue
        except StopIteration:
            yield from paragraph.taken()
            return
        except RecordFault as fault:
            paragraph.spoil(lines.number, fault)
            continue
        yield from paragraph.taken()


def read_document(stream: BinaryIO, name: str) -> Iterator[Item]:
    """Yield one record: the text without a newline at its end, and the file's name as `file`."""
    data = stream.read(MAX_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    try:
        if len(data) > MAX_BYTES:
            raise too_long()
        if data.strip():
            yield 1, {"prompt": _bare(data), "file": name}
    except RecordFault as fault:
        yield 1, fault.failure


def _bare(data: bytes) -> str:
    return decode(data).removesuffix("\n").removesuffix("\r")


class _Paragraph:
    """The lines of a paragraph so far, or the fault of one of them."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._start = self._size = 0
        self._fault: RecordFault | None = None

    def add(self, number: int, line: bytes) -> None:
        self._start = self._start or number
        self._size += len(line)
        if self._size > MAX_BYTES:
            self.spoil(number, too_long())
        if not self._fault:
            self._lines.append(line)

    def spoil(self, number: int, fault: RecordFault) -> None:
        self._start = self._start or number
        self._fault = self._fault or fault
        self._lines.clear()

    def taken(self) -> Iterator[Item]:
        start, fault, data = self._start, self._fault, b"".join(self._lines)
        self.__init__()  # type: ignore[misc]
        try:
            if fault:
                raise fault
            if data:
                yield start, {"prompt": _bare(data)}
        except RecordFault as found:
            yield start, found.failure
