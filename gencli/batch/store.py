"""Stores of outcomes during a batch: the journal, or a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from gencli.batch.journal import Journal
from gencli.batch.outputs.base import RowWriter
from gencli.batch.records import Outcome, Row
from gencli.batch.trace import TraceFile

__all__ = ["JournalStore", "Store", "StreamStore", "untimed"]


def untimed(outcome: Outcome) -> Outcome:
    """Return the outcome without times, which differ between runs."""
    result = {key: value for key, value in outcome.result.items() if key not in ("timings", "speculation")}
    if result.get("grammar"):
        result["grammar"] = {k: v for k, v in result["grammar"].items() if k != "compile_seconds"}
    return replace(outcome, result=result)


class Store(Protocol):
    """Interface of a store of outcomes."""

    def pending(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows that have to run."""
        ...

    def add(self, outcome: Outcome) -> None:
        """Store an outcome."""
        ...


class JournalStore:
    """Stores outcomes and their traces in a journal until all rows have ended."""

    def __init__(self, journal: Journal, *, with_failed: bool, trace: TraceFile | None = None) -> None:
        self._journal, self._with_failed, self._trace = journal, with_failed, trace

    def pending(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows that are not finished."""
        return self._journal.pending(rows, with_failed=self._with_failed)

    def add(self, outcome: Outcome) -> None:
        """Append the row's trace, then its outcome to the journal; a trace without outcome is dropped."""
        traced = self._trace.append(outcome.trace) if self._trace else None
        self._journal.append(outcome, traced=traced)

    def write(self, writer: RowWriter, *, by_row: bool, has_timings: bool) -> None:
        """Write all outcomes of the journal."""
        for outcome in self._journal.outcomes(by_row=by_row):
            writer.write(outcome if has_timings else untimed(outcome))


class StreamStore:
    """Writes outcomes immediately; with `by_row` in the order of rows, so that early ones wait in memory.

    Traces do not wait.
    """

    def __init__(
        self, writer: RowWriter, *, by_row: bool, has_timings: bool, trace: TraceFile | None = None
    ) -> None:
        self._writer, self._by_row, self._has_timings, self._trace = writer, by_row, has_timings, trace
        self._order: deque[int] = deque()  # indices of started rows that are not written yet
        self._early: dict[int, Outcome] = {}

    def pending(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield all rows."""
        for row in rows:
            self._order.append(row.record.index)
            yield row

    def add(self, outcome: Outcome) -> None:
        """Write the outcome, and outcomes that waited for it."""
        if self._trace:
            self._trace.append(outcome.trace)
            outcome = replace(outcome, trace="")
        if not self._by_row:
            self._write(outcome)
            return
        self._early[outcome.index] = outcome
        while self._order and self._order[0] in self._early:
            self._write(self._early.pop(self._order.popleft()))

    def close(self) -> None:
        """Write the outcomes that waited for rows without an outcome."""
        for index in sorted(self._early):
            self._write(self._early[index])

    def _write(self, outcome: Outcome) -> None:
        self._writer.write(outcome if self._has_timings else untimed(outcome))
