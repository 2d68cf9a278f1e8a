"""A worker: an engine in its own process that takes rows and returns outcomes in short calls.

The engine runs in a thread, so it does not wait for the next call. This module does not depend on Ray.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from gencli.batch.engines.base import RowEngine
from gencli.batch.records import Outcome, Row

__all__ = ["OpenEngine", "Report", "Worker"]

OpenEngine = Callable[[], AbstractContextManager[RowEngine]]  # loads the model
_PATIENCE = 0.2  # seconds that a call waits for an outcome


@dataclass(frozen=True, slots=True)
class Report:
    """Events of a worker since the last call. `is_over`: it has stopped as requested."""

    outcomes: tuple[Outcome, ...] = ()
    tokens: int = 0
    notices: tuple[str, ...] = ()
    occupancy: float = 0.0
    limit: int = 0
    reading: str = ""
    is_ready: bool = False
    is_over: bool = False


class _Inbox:
    """A queue of rows: an iterator that ends when the queue is empty and continues after `put`."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()
        self._is_news = threading.Event()

    def put(self, rows: Sequence[Row]) -> None:
        """Add rows and wake `wait`, even without rows."""
        self._rows.extend(rows)
        self._is_news.set()

    def wait(self) -> None:
        """Block until `put` is called."""
        self._is_news.wait()
        self._is_news.clear()

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        try:
            return self._rows.popleft()
        except IndexError:
            raise StopIteration from None


class Worker:
    """Runs an engine on the rows of `exchange`, which must not be called concurrently."""

    def __init__(self, open_engine: OpenEngine) -> None:
        self._inbox, self._outbox = _Inbox(), queue.SimpleQueue[Outcome]()
        self._engine: RowEngine | None = None
        self._error: BaseException | None = None
        self._num_tokens = self._num_told = self._num_said = 0
        self._thread = threading.Thread(target=self._serve, args=(open_engine,), daemon=True)
        self._thread.start()

    def exchange(self, rows: Sequence[Row], drain: float | None = None) -> Report:
        """Take rows, wait briefly for an outcome, and return a report.

        `drain` stops the worker: running rows have `drain` more seconds. Raises the error of the engine.
        """
        self._inbox.put(rows)
        if drain is not None:
            if self._engine is None:  # it is still loading and has no rows
                return Report(is_over=True)
            self._engine.stop(drain)
            self._inbox.put(())
        is_over = not self._thread.is_alive()  # checked before the remaining outcomes are taken
        outcomes = self._ended()
        if self._error is not None:
            raise self._error
        return Report() if self._engine is None else self._report(self._engine, outcomes, is_over=is_over)

    def _report(self, engine: RowEngine, outcomes: tuple[Outcome, ...], *, is_over: bool) -> Report:
        notices, tokens = tuple(engine.notices), self._num_tokens
        report = Report(
            outcomes,
            tokens - self._num_told,
            notices[self._num_said :],
            engine.occupancy,
            engine.limit,
            engine.reading,
            is_ready=True,
            is_over=is_over,
        )
        self._num_told, self._num_said = tokens, len(notices)
        return report

    def _ended(self) -> tuple[Outcome, ...]:
        """Return the outcomes so far; waits up to _PATIENCE seconds for the first."""
        found = []
        with suppress(queue.Empty):
            found.append(self._outbox.get(timeout=_PATIENCE))
            while True:
                found.append(self._outbox.get_nowait())
        return tuple(found)

    def _serve(self, open_engine: OpenEngine) -> None:
        """Body of the thread: load the model, then run rows until stopped."""
        try:
            with open_engine() as engine:
                self._engine = engine
                while not engine.is_stopped:
                    for outcome in engine.run(self._inbox, self._count):
                        self._outbox.put(outcome)
                    if not engine.is_stopped:
                        self._inbox.wait()
        except BaseException as error:
            self._error = error

    def _count(self, tokens: int) -> None:
        self._num_tokens += tokens
