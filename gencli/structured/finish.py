"""What finished texts are checked with, whatever the mask did."""

from __future__ import annotations

from typing import Protocol

__all__ = ["TextCheck"]


class TextCheck(Protocol):
    """Decides whether a finished text is what was asked for."""

    def faults(self, text: str) -> tuple[str, ...]:
        """What is wrong with the text, one sentence each; () if it is right."""
        ...
