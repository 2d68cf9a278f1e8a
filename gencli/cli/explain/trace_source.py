"""Traces that a command line names."""

from __future__ import annotations

from pathlib import Path

from gencli.errors import UsageError
from gencli.explain.trace_file import TracedText, read_trace
from gencli.files import open_regular

__all__ = ["open_trace"]


def open_trace(name: str, *, hint: str = "") -> list[TracedText]:
    """Return the texts of a trace file, or of stdin for `-`. Raises UsageError or GenerationError.

    `hint` is that of a file that cannot be opened.
    """
    try:
        with open_regular(Path("/dev/stdin" if name == "-" else name), pipes=True) as file:
            return read_trace(line.decode("utf-8") for line in file)
    except OSError as error:
        raise UsageError(
            f"The trace {name!r} cannot be read: {error.strerror or error}.", hint=hint
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"The trace {name!r} is not UTF-8.") from None
