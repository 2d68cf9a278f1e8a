"""`Pen`, the interface that writes the texts of a result in parts, and its implementation without colours."""

from __future__ import annotations

from typing import Protocol

from gencli.cli.terminal.render import Sink
from gencli.results.run_results import Row

__all__ = ["Pen", "PlainPen"]


class Pen(Protocol):
    """Interface that writes the text of samples, part by part and in order."""

    def write(self, row: Row, sample: int, text: str) -> None:
        """Write the next part of the text of a sample."""
        ...


class PlainPen:
    """Writes the parts as they are."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, row: Row, sample: int, text: str) -> None:
        """Write the next part."""
        self._sink.write(text)
