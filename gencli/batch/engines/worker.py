"""A model in a process of its own: rows come in and outcomes go out, in calls that are short.

The engine runs in a thread, so that it never waits for the next call. Nothing here knows of Ray.
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
    """What a worker has to say since the last call. `is_over`: it was told to stop, and has."""

    outcomes: tuple[Outcome, ...] = ()
    tokens: int = 0
    notices: tuple[str, ...] = ()
    occupancy: float = 0.0
    limit: int = 0
    reading: str = ""
    is_ready: bool = False
    is_over: bool = False


class _Inbox:
    """Rows that wait: an iterator that ends when none is left, and goes on when there are more."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()
        self._is_news = threading.Event()

    def put(self, rows: Sequence[Row]) -> None:
        """Add rows, and wake who waits for some; none is a way to wake it, too."""
        self._rows.extend(rows)
        self._is_news.set()

    def wait(self) -> None:
        """Sleep until something was put."""
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
    """Runs the ordinary engine on rows that it is handed. One call of `exchange` at a time."""

    def __init__(self, open_engine: OpenEngine) -> None:
        self._inbox, self._outbox = _Inbox(), queue.SimpleQueue[Outcome]()
        self._engine: RowEngine | None = None
        self._error: BaseException | None = None
        self._num_tokens = self._num_told = self._num_said = 0
        self._thread = threading.Thread(target=self._serve, args=(open_engine,), daemon=True)
        self._thread.start()

    def exchange(self, rows: Sequence[Row], drain: float | None = None) -> Report:
        """Take rows, and report what has ended, after a short wait for something to end.

        `drain` tells the worker to stop: what runs has so many seconds yet. Raises what the engine raised.
        """
        self._inbox.put(rows)
        if drain is not None:
            if self._engine is None:  # it is still loading, and has nothing to end
                return Report(is_over=True)
            self._engine.stop(drain)
            self._inbox.put(())
        is_over = not self._thread.is_alive()  # asked first: what it has left behind is taken below
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
        """All that has ended; at least one if one ends soon."""
        found = []
        with suppress(queue.Empty):
            found.append(self._outbox.get(timeout=_PATIENCE))
            while True:
                found.append(self._outbox.get_nowait())
        return tuple(found)

    def _serve(self, open_engine: OpenEngine) -> None:
        """The thread: load, then run what comes, until told to stop."""
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
