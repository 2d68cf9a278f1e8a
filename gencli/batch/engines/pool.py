"""A pool of Ray actors, each with a model: rows are handed out, outcomes come back, the dead are replaced."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from gencli.batch.engines.base import OnTokens
from gencli.batch.engines.cluster import Share
from gencli.batch.engines.worker import OpenEngine, Report, Worker
from gencli.batch.records import Outcome, Row
from gencli.errors import GenerationError

__all__ = ["Pool"]

_MAX_DEATHS = 3  # in a row, without an outcome between: then it is the rows, or the model, that kills
_PULSE = 0.5  # seconds after which signals are looked at


@dataclass(slots=True, eq=False)
class _Member:
    """A worker, and the rows that it was handed and has no outcome for."""

    actor: Any
    held: dict[int, Row] = field(default_factory=dict)
    last: Report = field(default_factory=Report)
    is_told: bool = False  # to stop
    is_over: bool = False


class Pool:
    """Runs rows on workers. Each holds up to `window` rows, and is handed half of that at a time, so that
    few rows are shared by all.

    A worker that dies is replaced, and its rows are handed out again. Their text is the same, whoever
    draws it: the draws are keyed by the rows.
    """

    def __init__(
        self,
        open_engine: OpenEngine,
        *,
        workers: int,
        share: Share,
        window: int,
    ) -> None:
        actor = ray.remote(Worker).options(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0)
        self._make: Callable[[], Any] = partial(actor.remote, open_engine)
        self._members = [_Member(self._make()) for _ in range(workers)]
        self._calls: dict[Any, _Member] = {}  # by the reference to their answer
        self._window, self._block = window, max(1, window // 2)
        self._source: Iterator[Row] = iter(())
        self._is_dry = False  # the source has no more rows
        self._again: deque[Row] = deque()  # rows of workers that have died
        self._num_deaths = 0  # since the last outcome
        self._drain: float | None = None
        self.notices: list[str] = []

    @property
    def occupancy(self) -> float:
        """What runs, of what may run at once."""
        return sum(member.last.occupancy for member in self._members) / len(self._members)

    @property
    def reading(self) -> str:
        """How far long prompts are that a worker reads; empty if none does."""
        return next((member.last.reading for member in self._members if member.last.reading), "")

    @property
    def limit(self) -> int:
        """How many samples may run at once, on all workers together."""
        return sum(member.last.limit for member in self._members)

    @property
    def is_stopped(self) -> bool:
        """Whether the run was told to end before all rows were through."""
        return self._drain is not None

    def stop(self, drain: float = 0.0) -> None:
        """End in order: what runs has `drain` seconds yet, all else is left. Safe in a signal handler."""
        self._drain = drain

    def wait(self) -> None:
        """Until every worker has loaded its model. Raises what kept one from it."""
        while not all(member.last.is_ready for member in self._members):
            self._call_all(lambda member: not member.last.is_ready)
            list(self._reports())

    def run(self, rows: Iterable[Row], on_tokens: OnTokens = lambda tokens: None) -> Iterator[Outcome]:
        """An outcome for each row, as they end. Rows that were interrupted have none."""
        self._source, self._is_dry = iter(rows), False
        while True:
            self._call_all(self._is_needed)
            if self._is_through():
                return
            for report in self._reports():
                on_tokens(report.tokens)
                yield from report.outcomes

    def _is_through(self) -> bool:
        if self.is_stopped:
            return all(member.is_over for member in self._members)
        is_held = any(member.held for member in self._members)
        return self._is_dry and not self._again and not is_held

    def _is_needed(self, member: _Member) -> bool:
        """Whether the member has something to do, or to end."""
        if self.is_stopped:
            member.is_over |= not member.held
            return not member.is_over
        return bool(member.held) or not member.last.is_ready

    def _call_all(self, is_needed: Callable[[_Member], bool]) -> None:
        """Hand rows to those that no answer is awaited from, and call them if they are needed."""
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
        """What fills its window: rows of the dead first. A worker that is still loading waits."""
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
        """Wait for a worker to report, or a moment."""
        ready, _ = ray.wait(list(self._calls), timeout=_PULSE)
        for reference in ready:
            member = self._calls.pop(reference)
            try:
                report = ray.get(reference)
            except RayTaskError as error:  # the worker lives, and says what is wrong
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
        """Another worker for one that is gone. Raises GenerationError where they die one after the other."""
        with suppress(RayError):
            ray.kill(member.actor)  # where only the connection was lost
        self._again.extend(member.held.values())
        count = len(member.held)
        member.held, member.last = {}, Report()
        if self.is_stopped:
            member.is_over = True
            return
        self._num_deaths += 1
        if self._num_deaths >= _MAX_DEATHS:
            said = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise GenerationError(
                f"{_MAX_DEATHS} workers died before a row was finished: {said}",
                hint="Perhaps the memory is too small: lower `workers` or `max_batch`.",
            )
        self.notices.append(f"A worker has died; its {count:,} rows run again on another one.")
        member.actor = self._make()
