"""The interface between a batch and the engine that runs its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from gencli.batch.records import Outcome, Row

if TYPE_CHECKING:
    from gencli.engine.engine import Engine

__all__ = ["OnTokens", "OwnEngine", "RowEngine"]

OnTokens = Callable[[int], None]  # called repeatedly with the number of new tokens


class RowEngine(Protocol):
    """Runs rows; reads only a few rows ahead, so memory does not grow with the input."""

    @property
    def notices(self) -> Sequence[str]:
        """Notices for the user so far, in order; callers print those that they have not printed yet."""
        ...

    @property
    def occupancy(self) -> float:
        """Share of the slots in use during the last step, in 0..1."""
        ...

    @property
    def reading(self) -> str:
        """Prefill progress of long prompts as text; "" if there are none."""
        ...

    @property
    def limit(self) -> int:
        """Number of samples that may run at once; halved after out-of-memory."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called, after which no row starts."""
        ...

    def stop(self, drain: float = 0.0) -> None:
        """Stop: running rows have `drain` more seconds, no further rows start. Safe in a signal handler."""
        ...

    def run(self, rows: Iterable[Row], on_tokens: OnTokens = ...) -> Iterator[Outcome]:
        """Yield the outcome of each row as it ends. Interrupted rows have none."""
        ...


class OwnEngine:
    """The properties of a RowEngine that runs its rows on an engine of this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def notices(self) -> list[str]:
        """The notices of the engine so far."""
        return self._engine.notices

    @property
    def occupancy(self) -> float:
        """Share of the slots in use during the last step, in 0..1."""
        return self._engine.occupancy

    @property
    def limit(self) -> int:
        """The number of sequences that may run at once."""
        return self._engine.limit
