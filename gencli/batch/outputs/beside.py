"""Atomic files: written under a temporary name in the same folder, flushed to the disk, renamed."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from gencli.batch.extras import need_pyarrow
from gencli.errors import UsageError
from gencli.files import replaced

__all__ = ["check_writable", "open_beside", "packing_of"]


def packing_of(path: Path) -> str:
    """Return the suffix of the compression; "" without compression."""
    return path.suffix.lower() if path.suffix.lower() in (".gz", ".zst") else ""


def check_writable(path: Path) -> None:
    """Raise UsageError if the folder of a result is missing or not writable."""
    if not path.parent.is_dir():
        raise UsageError(f"`output` = {path}: there is no folder {path.parent}.", hint="Create it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"`output` = {path}: the folder {path.parent} cannot be written to.")


@contextmanager
def open_beside(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write, compressed by its suffix. It is renamed to `path` after the block, or deleted.

    The target of a link is replaced, not the link. A device or a named pipe is written directly.
    """
    with replaced(path) as file, _packed(file, packing_of(path.resolve()), path.name) as stream:
        yield stream


@contextmanager
def _packed(file: BinaryIO, packing: str, name: str) -> Iterator[BinaryIO]:
    with ExitStack() as stack:
        if packing == ".gz":  # without name and time, so equal results give equal files
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
            file = cast(BinaryIO, stack.enter_context(packed))
        elif packing == ".zst":
            need_pyarrow(name)
            import pyarrow as pa

            sink = pa.PythonFile(_Open(file), mode="w")
            file = cast(BinaryIO, stack.enter_context(pa.CompressedOutputStream(sink, "zstd")))
        yield file


class _Open:
    """A file that ignores `close` by pyarrow, because the owner still has to flush it to the disk."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.write, self.flush = file.write, file.flush

    def close(self) -> None:
        """Do nothing: the owner closes the file."""
