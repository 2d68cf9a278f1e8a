"""What native code writes to standard error, caught."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["caught_lines"]

_STDERR = 2
_LOCK = Lock()  # there is one standard error in a process


@contextmanager
def caught_lines(is_ours: Callable[[str], bool]) -> Iterator[list[str]]:
    """The lines on file descriptor 2 that are ours, in the list when the block is left.

    The libraries know no other way to hear their warnings. Lines that other threads write meanwhile are
    passed on to the real standard error.
    """
    lines: list[str] = []
    with _LOCK, tempfile.TemporaryFile() as file:
        try:
            saved = os.dup(_STDERR)
        except OSError:  # a process without standard error
            yield lines
            return
        os.dup2(file.fileno(), _STDERR)
        try:
            yield lines
        finally:
            os.dup2(saved, _STDERR)
            os.close(saved)
            file.seek(0)
            for line in file.read().splitlines(keepends=True):
                text = line.decode("utf-8", "replace").rstrip("\n")
                if is_ours(text):
                    lines.append(text)
                else:
                    os.write(_STDERR, line)
