"""Interface for messages of a run to its user: lines, notices, and progress of loading a model."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from gencli.models.files.model_files import OnBytes

__all__ = ["Recorder", "Reporter"]


class Reporter(Protocol):
    """Receives the messages of a run. They name options by key; see gencli.config.options.flags."""

    def say(self, text: str) -> None:
        """Report a line."""
        ...

    def notice(self, text: str) -> None:
        """Report a notice."""
        ...

    def loading(self, name: str, verb: str = "Loading") -> AbstractContextManager[OnBytes | None]:
        """Return a context in which a model is loaded or hashed.

        The context's value is a function of the bytes done and the total bytes, or None.
        """
        ...


class Recorder:
    """Reporter that stores lines and notices in `lines`, for a process whose stderr is not read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        """Store a line."""
        self.lines.append(text)

    def notice(self, text: str) -> None:
        """Store a notice."""
        self.lines.append(text)

    def loading(self, name: str, verb: str = "Loading") -> AbstractContextManager[OnBytes | None]:
        """Return a context without a value: progress is not stored."""
        return nullcontext()
