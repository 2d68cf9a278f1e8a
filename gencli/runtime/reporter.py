"""Reports of a run to its user beside the result: lines, notices, and the progress of loading a model."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from gencli.models.watch import OnBytes

__all__ = ["Recorder", "Reporter"]


class Reporter(Protocol):
    """Takes the reports of a run. Messages name options by their keys; see gencli.config.options.flags."""

    def say(self, text: str) -> None:
        """Report a line."""
        ...

    def notice(self, text: str) -> None:
        """Report a notice."""
        ...

    def loading(self, name: str, verb: str = "Loading") -> AbstractContextManager[OnBytes | None]:
        """Return a context in which a model is loaded or hashed.

        Its value is to be called with the bytes done and the bytes in all.
        """
        ...


class Recorder:
    """Reporter that keeps lines and notices in `lines`, as in a process whose stderr nobody reads."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        """Keep a line."""
        self.lines.append(text)

    def notice(self, text: str) -> None:
        """Keep a notice."""
        self.lines.append(text)

    def loading(self, name: str, verb: str = "Loading") -> AbstractContextManager[OnBytes | None]:
        """Return a context without a value: nothing is kept of it."""
        return nullcontext()
