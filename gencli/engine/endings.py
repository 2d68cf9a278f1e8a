"""How sequences end other than by their own text: cancelled, interrupted, late, or with an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import torch

from gencli.core.events import Event
from gencli.core.request import Request
from gencli.engine.scheduler import Samples, Scheduler
from gencli.engine.sequence import Group, Sequence, heads
from processors.pipeline import Pipeline


class Endings:
    """Ends sequences and groups. `release(lanes, slots)` empties KV lanes and drops other state of slots.

    `may_be_due`: whether `due` may have something to end.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        pipeline: Pipeline,
        release: Callable[[Iterable[int], Iterable[int]], None],
    ) -> None:
        self._scheduler, self._pipeline, self._release = scheduler, pipeline, release
        self._cancelled: dict[str, None] = {}  # ids of requests, until the next step; accesses are atomic
        self._is_timed = False  # whether any request so far had a `max_time`
        self.may_be_due = False

    def cancel(self, request_id: str) -> None:
        """Mark a request as cancelled; `due` ends it. Safe from another thread."""
        self._cancelled[request_id] = None
        self.may_be_due = True

    def watch(self, request: Request) -> None:
        """Be ready to end a new request. An earlier cancellation of its id does not count."""
        self._cancelled.pop(request.id, None)
        self._is_timed |= request.limits.max_time is not None
        self.may_be_due |= self._is_timed

    def due(self) -> Iterator[Event]:
        """End cancelled requests (reason `interrupted`), and those whose `max_time` has passed."""
        self.may_be_due = self._is_timed  # before the ids are read, since they come from other threads
        scheduler = self._scheduler
        while self._cancelled:
            request_id, _ = self._cancelled.popitem()
            sequences = [s for s in scheduler.everything() if s.request.id == request_id]
            yield from self._interrupt(
                sequences, [s for s in scheduler.pending if s.request.id == request_id]
            )
        now = time.monotonic()
        pending = [s for s in scheduler.pending if s.request.limits.is_over(now - s.submitted)]
        late = [s for s in scheduler.everything() if s.request.limits.is_over(now - s.submitted)]
        ended = self._end(late, "length", "max_time")
        yield from self._end_pending(pending, "length", "max_time")
        yield from ended

    def everything(self) -> Iterator[Event]:
        """End all requests (reason `interrupted`)."""
        return self._interrupt(self._scheduler.everything(), self._scheduler.pending)

    def waiting(self) -> Iterator[Event]:
        """End the requests that have not begun; running ones continue."""
        return self._interrupt(self._scheduler.waiting, self._scheduler.pending)

    def completion(self, sequence: Sequence, tokens: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return tokens that complete the open document after `tokens`; () without `finish_open`."""
        is_open = sequence.request.finish_open and sequence.document == "open"
        return self._pipeline.completion(sequence.slot, tokens) if is_open else ()

    def fail(self, unit: Sequence | Group, error: Exception) -> list[Event]:
        events = unit.drain(time.monotonic(), error)
        self.remove(unit)
        return events

    def remove(self, unit: Sequence | Group) -> None:
        """Free the slots of a unit that has ended, or remove it from the queue."""
        slots = unit.slots
        self._release(self._scheduler.remove(unit), slots)

    def _interrupt(self, sequences: Iterable[Sequence], pending: Iterable[Samples]) -> Iterator[Event]:
        yield from self._end(sequences, "interrupted")
        yield from self._end_pending(pending, "interrupted")

    def _end_pending(
        self, pending: Iterable[Samples], reason: str, matched: str | None = None
    ) -> Iterator[Event]:
        for samples in [*pending]:
            self._scheduler.pending.remove(samples)
            yield from samples.end(reason, matched)

    @torch.inference_mode()
    def _end(self, sequences: Iterable[Sequence], reason: str, matched: str | None = None) -> list[Event]:
        events = list[Event]()
        for sequence in heads(sequences):
            unit = sequence.unit
            if reason == "length" and unit is sequence and (completion := self.completion(sequence)):
                sequence.end_cut(completion, matched)
            else:
                unit.close(reason, matched)
            events += unit.drain(time.monotonic())
            self.remove(unit)
        return events
