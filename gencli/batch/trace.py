"""The trace of a batch: the lines of a row, created at its end, and the file that collects them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gencli.batch.journal import read_header
from gencli.batch.outputs.output import Output
from gencli.batch.places import Places
from gencli.batch.plan import Plan
from gencli.batch.records import Row
from gencli.core.events import Error, Finish
from gencli.errors import GenerationError, UsageError
from gencli.explain.head import text_head
from gencli.explain.trace_file import sample_lines
from gencli.explain.views import Views
from gencli.files import NO_LINK
from gencli.lock import locked
from gencli.results.record import RunInfo

__all__ = ["TraceFile", "check_trace", "opened_trace", "refuse_old_trace", "row_trace"]

_BINARY = getattr(os, "O_BINARY", 0)
_BLOCK = 1 << 16  # bytes


def row_trace(
    row: Row, info: RunInfo, ends: Sequence[Finish | Error], found: Views, prompt_ids: tuple[int, ...]
) -> str:
    """Return the lines of a row that has ended, sample by sample; "" without a trace."""
    if info.job.trace is None or info.tokenizer is None:
        return ""
    head = text_head(info, row.prompt or "", prompt_ids)
    if row.messages:
        head["messages"] = list(row.messages)
    return "".join(
        line for end in ends for line in sample_lines(row.id, end, head, found.of(end.sample), info.tokenizer)
    )


def check_trace(path: str | None, output: Output, taken: Iterable[Path]) -> None:
    """Raise UsageError for a trace that is another file of the batch, or not a regular file."""
    if path is None:
        return
    said, place = f"`trace` = {path}", Path(path).resolve()
    if place in {other.resolve() for other in taken}:
        raise UsageError(f"{said} is also the input, the output or the summary.", hint="Name another file.")
    if output.path is not None and output.format.folder and output.path.resolve() in place.parents:
        raise UsageError(f"{said} is in the output, a folder of texts only.", hint="Name a file beside it.")
    if place.exists() and not place.is_file():
        raise UsageError(f"{said} is no regular file.", hint="A batch appends to its trace: name a file.")


def refuse_old_trace(path: str | None, plan: Plan, places: Places | None) -> None:
    """Raise UsageError if a new batch would replace an earlier trace without `overwrite`."""
    is_begun = places is not None and read_header(places.journal) is not None
    if path is None or is_begun or plan["overwrite"] or not Path(path).exists():
        return
    way = "`overwrite` replaces it, with the output." if places else "Name another file, or delete it."
    raise UsageError(f"`trace` = {path} exists already.", hint=way)


@contextmanager
def opened_trace(path: str | None, size: int = 0) -> Iterator[TraceFile | None]:
    """Open the trace of a batch; its finished rows take `size` bytes. None without a trace."""
    if path is None:
        yield None
        return
    with locked(Path(path).resolve(), hint="Give each batch a trace of its own."):
        trace = TraceFile(Path(path), size)
        try:
            yield trace
        finally:
            trace.close()


class TraceFile:
    """Appends the lines of rows, each row's lines in one write."""

    def __init__(self, path: Path, size: int = 0) -> None:
        """Open the file and drop the bytes from `size` on, the lines of unfinished rows.

        `missing`: number of bytes that the file lacks. Raises UsageError if it is not writable.
        """
        self.path = path
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_LINK | _BINARY, 0o644)
        except OSError as error:
            raise UsageError(f"`trace` = {path}: cannot be written: {error.strerror}.") from error
        self._size = size if os.fstat(self._handle).st_size >= size else self._whole_lines()
        self.missing = size - self._size
        os.ftruncate(self._handle, self._size)

    def append(self, lines: str) -> int:
        """Append the lines of a row; return the file's size in bytes. Raises GenerationError."""
        data = lines.encode("utf-8", "backslashreplace")  # JSON reads a lone surrogate from its escape
        reason = "only a part of a row was written"
        try:
            written = os.write(self._handle, data)
        except OSError as error:
            written, reason = 0, error.strerror or str(error)
        if written < len(data):
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
            raise GenerationError(f"`trace` = {self.path} cannot be written: {reason}.")
        self._size += written
        return self._size

    def close(self) -> None:
        """Flush the file to the disk and close it."""
        with suppress(OSError):
            os.fsync(self._handle)
        os.close(self._handle)

    def _whole_lines(self) -> int:
        """Return the size in bytes without an incomplete last line."""
        end = os.lseek(self._handle, 0, os.SEEK_END)
        while end:
            start = max(0, end - _BLOCK)
            os.lseek(self._handle, start, os.SEEK_SET)
            found = os.read(self._handle, end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0
