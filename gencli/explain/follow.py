"""Lines of a file that another process is still writing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gencli.errors import GenerationError, UsageError
from gencli.explain.trace_file import MAX_LINE
from gencli.files import open_regular

__all__ = ["follow", "opened_trace"]

_PAUSE = 0.1  # seconds between two checks of the end of the file
_CHUNK = 1 << 16  # bytes


def follow(name: str, pause: float = _PAUSE) -> Iterator[str]:
    """Yield the complete lines of a trace, existing and future ones; never ends by itself.

    A pipe ends with its writer. Keeps one line in memory. `pause`: seconds to sleep at the end of the file.
    Raises UsageError for a file that cannot be read and a pause of 0, which would keep a core busy;
    GenerationError if the file is replaced or truncated, or for an endless line.
    """
    if not pause > 0:
        raise UsageError(f"pause is {pause:g}, but has to be above 0 seconds.")
    with opened_trace(name) as file:
        yield from _lines(Path(name), file, pause)


@contextmanager
def opened_trace(name: str, *, hint: str = "") -> Iterator[BinaryIO]:
    """Open a trace. Raises UsageError if it cannot be read or is not UTF-8, also while its lines are read."""
    try:
        with open_regular(Path(name), pipes=True) as file:
            yield file
    except OSError as error:
        raise UsageError(
            f"The trace {name!r} cannot be read: {error.strerror or error}.", hint=hint
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"The trace {name!r} is not UTF-8.") from None


def _lines(path: Path, file: BinaryIO, pause: float) -> Iterator[str]:
    held = b""
    is_file = file.seekable()
    while True:
        if chunk := file.read(_CHUNK):
            *lines, held = (held + chunk).split(b"\n")
            yield from (line.decode("utf-8") for line in lines)
            if len(held) > MAX_LINE:
                raise GenerationError(f"The trace has a line of more than {MAX_LINE:,} bytes.")
        elif is_file:
            _check(path, file)
            time.sleep(pause)
        else:
            return


def _check(path: Path, file: BinaryIO) -> None:
    """Raise GenerationError if the file was replaced, or is shorter than the part read so far."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        raise GenerationError(f"The trace {str(path)!r} was removed while it was read.") from None
    here = os.fstat(file.fileno())
    if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
        raise GenerationError(f"The trace {str(path)!r} was replaced while it was read.")
    if here.st_size < file.tell():
        raise GenerationError(f"The trace {str(path)!r} was cut while it was read.")
