"""Files that get their name when they are complete: written beside it, flushed to the disk, renamed."""

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
    """The suffix that says how the file is packed; empty if it is not."""
    return path.suffix.lower() if path.suffix.lower() in (".gz", ".zst") else ""


def check_writable(path: Path) -> None:
    """Raise UsageError if the folder of a result is missing, or takes no file."""
    if not path.parent.is_dir():
        raise UsageError(f"`output` = {path}: there is no folder {path.parent}.", hint="Make it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"`output` = {path}: the folder {path.parent} cannot be written to.")


@contextmanager
def open_beside(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, packed as its suffix says. It has its name after the block, or is gone.

    A link stays one: what it leads to is replaced. What is no regular file, /dev/null or a named pipe, is
    written to as it is.
    """
    with replaced(path) as file, _packed(file, packing_of(path.resolve()), path.name) as stream:
        yield stream


@contextmanager
def _packed(file: BinaryIO, packing: str, name: str) -> Iterator[BinaryIO]:
    with ExitStack() as stack:
        if packing == ".gz":  # without name and time, so that equal results are equal files
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
            file = cast(BinaryIO, stack.enter_context(packed))
        elif packing == ".zst":
            need_pyarrow(name)
            import pyarrow as pa

            sink = pa.PythonFile(_Open(file), mode="w")
            file = cast(BinaryIO, stack.enter_context(pa.CompressedOutputStream(sink, "zstd")))
        yield file


class _Open:
    """A file that stays open when pyarrow closes it: it has to be flushed to the disk yet."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.write, self.flush = file.write, file.flush

    def close(self) -> None:
        """Leave that to the owner."""
