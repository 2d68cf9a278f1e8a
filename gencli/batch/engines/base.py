"""The one seam between a batch and what runs its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from gencli.batch.records import Outcome, Row

__all__ = ["OnTokens", "RowEngine"]

OnTokens = Callable[[int], None]  # hears, again and again, how many tokens were made


class RowEngine(Protocol):
    """Runs rows, a few ahead of those that are through, so that memory is flat."""

    @property
    def notices(self) -> Sequence[str]:
        """What deserves a word; it grows."""
        ...

    @property
    def occupancy(self) -> float:
        """What runs, of what may run at once."""
        ...

    @property
    def reading(self) -> str:
        """How far long prompts are that are being read; empty if none is."""
        ...

    @property
    def limit(self) -> int:
        """How many samples may run at once."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether the run was told to end before all rows were through."""
        ...

    def stop(self, drain: float = 0.0) -> None:
        """End in order: what runs has `drain` seconds yet, all else is left. Safe in a signal handler."""
        ...

    def run(self, rows: Iterable[Row], on_tokens: OnTokens = ...) -> Iterator[Outcome]:
        """An outcome for each row, as they end. Rows that were interrupted have none."""
        ...
