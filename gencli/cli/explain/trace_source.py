"""Reads traces given on a command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from gencli.errors import GenerationError
from gencli.explain.follow import opened_trace
from gencli.explain.trace_file import MAX_LINE, TracedText, read_trace

__all__ = ["is_chosen", "matching", "open_trace", "trace_lines"]

_MOST = 4 * MAX_LINE  # bytes of a line


def open_trace(name: str, *, hint: str = "") -> list[TracedText]:
    """Return the texts of a trace file, or of stdin for `-`. Raises UsageError or GenerationError.

    `hint`: hint of the error for a file that cannot be opened.
    """
    with trace_lines("/dev/stdin" if name == "-" else name, hint=hint) as lines:
        return read_trace(lines)


@contextmanager
def trace_lines(name: str, *, hint: str = "") -> Iterator[Iterator[str]]:
    """Open a file of lines. Raises UsageError if it cannot be read, also during iteration."""
    with opened_trace(name, hint=hint) as file:
        yield _lines(file)


def _lines(file: BinaryIO) -> Iterator[str]:
    while line := file.readline(_MOST):
        if len(line) == _MOST:
            raise GenerationError(f"A line of the trace has more than {_MOST:,} bytes.")
        yield line.decode("utf-8")


def matching(texts: Iterable[TracedText], values: Mapping[str, Any]) -> list[TracedText]:
    """Return the texts selected by the options --run and --sample."""
    return [text for text in texts if is_chosen(text.key, values["request"], values["sample"])]


def is_chosen(key: tuple[str, int], request: str | None, sample: int | None) -> bool:
    """Return whether a text is that of --run and --sample, which counts from 1; None is any."""
    return request in (None, key[0]) and sample in (None, key[1] + 1)
