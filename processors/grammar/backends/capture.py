"""Capture lines that native code writes to standard error."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["caught_lines"]

_STDERR = 2
_LOCK = Lock()  # standard error is shared by the process


@contextmanager
def caught_lines(is_ours: Callable[[str], bool]) -> Iterator[list[str]]:
    """Capture the lines written to file descriptor 2 for which `is_ours` is true.

    The list is filled when the block ends. All other lines are passed on to standard error. The libraries
    report warnings in no other way.
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
