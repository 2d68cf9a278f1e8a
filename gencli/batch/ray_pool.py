"""A pool of Ray actors, each with its own model; actors that die are replaced."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from gencli.batch.batch_records import OnTokens, Outcome, Row
from gencli.batch.ray_workers import OpenEngine, Report, Share, Worker
from gencli.errors import GenerationError
from gencli.helpers import counted

_MAX_DEATHS = 3  # worker deaths in a row; more mean that the rows or the model are the cause
_PULSE = 0.5  # seconds between checks for signals


@dataclass(slots=True, eq=False)
class _Member:
    """A worker, and its rows without an outcome."""

    actor: Any
    held: dict[int, Row] = field(default_factory=dict)
    last: Report = field(default_factory=Report)
    is_told: bool = False  # was told to stop
    is_over: bool = False


class Pool:
    """Runs rows on workers.

    A worker holds up to `window` rows and gets half of that at a time, so that few rows are spread over all
    workers. A worker that dies is replaced, and its rows run again with the same texts, because draws depend
    on the row only.
    """

    def __init__(self, open_engine: OpenEngine, *, workers: int, share: Share, window: int) -> None:
        actor = ray.remote(Worker).options(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0)
        self._make: Callable[[], Any] = partial(actor.remote, open_engine)
        self._members = [_Member(self._make()) for _ in range(workers)]
        self._calls: dict[Any, _Member] = {}  # pending calls, by the reference to the result
        self._window, self._block = window, max(1, window // 2)
        self._source: Iterator[Row] = iter(())
        self._is_dry = False  # whether the source has no more rows
        self._again: deque[Row] = deque()  # rows of workers that have died
        self._num_deaths = 0  # deaths since the last outcome
        self._drain: float | None = None
        self.notices: list[str] = []

    @property
    def occupancy(self) -> float:
        return sum(member.last.occupancy for member in self._members) / len(self._members)

    @property
    def reading(self) -> str:
        return next((member.last.reading for member in self._members if member.last.reading), "")

    @property
    def limit(self) -> int:
        return sum(member.last.limit for member in self._members)

    @property
    def is_stopped(self) -> bool:
        return self._drain is not None

    def stop(self, drain: float = 0.0) -> None:
        self._drain = drain

    def wait(self) -> None:
        """Wait until every worker has loaded its model. Raises the error of a worker that failed."""
        while not all(member.last.is_ready for member in self._members):
            self._call_all(lambda member: not member.last.is_ready)
            list(self._reports())

    def run(self, rows: Iterable[Row], on_tokens: OnTokens = lambda tokens: None) -> Iterator[Outcome]:
        self._source, self._is_dry = iter(rows), False
        while True:
            self._call_all(self._is_needed)
            is_held = any(member.held for member in self._members)
            is_through = self._is_dry and not self._again and not is_held
            if all(member.is_over for member in self._members) if self.is_stopped else is_through:
                return
            for report in self._reports():
                on_tokens(report.tokens)
                yield from report.outcomes

    def _is_needed(self, member: _Member) -> bool:
        if self.is_stopped:
            member.is_over |= not member.held
            return not member.is_over
        return bool(member.held) or not member.last.is_ready

    def _call_all(self, is_needed: Callable[[_Member], bool]) -> None:
        """Send rows to workers without a pending call, and call the workers for which `is_needed`."""
        called = set(map(id, self._calls.values()))
        for member in self._members:
            if id(member) in called:
                continue
            rows = self._rows_for(member)
            member.held.update((row.record.index, row) for row in rows)
            if is_needed(member):
                drain = None if member.is_told else self._drain
                member.is_told = self.is_stopped
                self._calls[member.actor.exchange.remote(rows, drain)] = member

    def _rows_for(self, member: _Member) -> Sequence[Row]:
        """Return rows that fill the worker's window, rows of dead workers first; none while it loads."""
        rows: list[Row] = []
        if self.is_stopped or not member.last.is_ready:
            return rows
        while len(rows) < self._block and len(member.held) + len(rows) < self._window:
            row = self._again.popleft() if self._again else next(self._source, None)
            if row is None:
                self._is_dry = True
                break
            rows.append(row)
        return rows

    def _reports(self) -> Iterator[Report]:
        """Wait at most _PULSE seconds for reports, and yield them."""
        ready, _ = ray.wait(list(self._calls), timeout=_PULSE)
        for reference in ready:
            member = self._calls.pop(reference)
            try:
                report = ray.get(reference)
            except RayTaskError as error:  # the worker is alive and reports an error
                raise error.cause from error
            except RayError as error:
                self._replace(member, error)
            else:
                self._take(member, report)
                yield report

    def _take(self, member: _Member, report: Report) -> None:
        member.last, member.is_over = report, report.is_over
        self.notices += [text for text in report.notices if text not in self.notices]
        for outcome in report.outcomes:
            self._num_deaths = 0
            del member.held[outcome.index]

    def _replace(self, member: _Member, error: RayError) -> None:
        """Replace a dead worker. Raises GenerationError if several die without an outcome in between."""
        with suppress(RayError):
            ray.kill(member.actor)  # the actor may live on if only the connection was lost
        self._again.extend(member.held.values())
        count = len(member.held)
        member.held, member.last = {}, Report()
        if self.is_stopped:
            member.is_over = True
            return
        self._num_deaths += 1
        if self._num_deaths >= _MAX_DEATHS:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise GenerationError(
                f"{_MAX_DEATHS} workers died before a row was finished: {reason}",
                hint="The memory may be too small: lower `workers` or `max_batch`.",
            )
        rows = counted(count, "row runs", "rows run")
        self.notices.append(f"A worker has died; its {rows} again on another one.")
        member.actor = self._make()
