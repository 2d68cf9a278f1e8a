"""Retries: invalid outputs are sampled again; the last attempt of each sample is reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gencli.core.events import Error, Event, Finish
from gencli.core.request import Request
from gencli.engine.engine import Engine
from gencli.runtime.grammars import PerSpec
from gencli.structured.output_spec import OutputSpec, OutputValidator
from processors.rng import derive

__all__ = ["RetryingEngine"]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt at a sample of a request, and the seconds spent on earlier attempts."""

    request: Request
    structure: OutputSpec | None
    sample: int
    number: int = 1
    seconds: float = 0.0

    @property
    def is_last(self) -> bool:
        """Whether no retry is left."""
        return self.structure is None or self.number > self.structure.retries


@dataclass(slots=True)
class _Submitted:
    """A request, and the number of its samples still in their first attempt."""

    request: Request
    structure: OutputSpec | None
    num_open: int


class RetryingEngine:
    """Run requests, validate their texts, and retry invalid samples up to `retries` times.

    Retry k uses the seed derive(seed of the sample, k). `max_time` limits the time of all attempts together.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._validators = PerSpec(OutputValidator)
        self._submitted: dict[str, _Submitted] = {}  # submitted requests by id, during first attempts
        self._retries: dict[tuple[str, int], _Attempt] = {}  # retries by the engine's request id and sample

    def submit(self, request: Request, structure: OutputSpec | None = None) -> None:
        """Queue a request; `structure` validates its texts, if given."""
        self._engine.submit(request)
        self._submitted[request.id] = _Submitted(request, structure, request.n)

    def run(self, *, is_merged: bool = False) -> Iterator[Event]:
        """Yield the events of all requests, under their own ids, each finish with its verdict.

        More may be submitted between two events. `is_merged`: as in Engine.run.
        """
        for event in self._engine.run(is_merged=is_merged):
            yield from self._process(event)

    @property
    def has_work(self) -> bool:
        """Whether any request has not ended."""
        return self._engine.has_work

    def step(self) -> list[Event]:
        """Run one step of the engine; return its events as `run` would. For the caller's own loop."""
        return [processed for event in self._engine.step() for processed in self._process(event)]

    def cancel(self, request_id: str) -> None:
        """End all samples of a request, retries too, at the next step (reason `interrupted`)."""
        for (name, _), attempt in self._retries.items():
            if attempt.request.id == request_id:
                self._engine.cancel(name)
        self._engine.cancel(request_id)

    def end_waiting(self) -> Iterator[Event]:
        """End the requests that have not begun; running ones continue."""
        for event in self._engine.end_waiting():
            yield from self._process(event)

    def _process(self, event: Event) -> Iterator[Event]:
        num_ended = isinstance(event, Finish | Error) + _more(event)
        attempt = self._attempt_of(event.request, event.sample, num_ended)
        if attempt.number > 1:
            event = replace(event, request=attempt.request.id, sample=attempt.sample)
        if isinstance(event, Finish):
            event = self._validators(attempt.structure)(event, attempt.request.marker)
            if event.verdict is not None:
                event = replace(event, verdict=replace(event.verdict, attempts=attempt.number))
        if (
            not isinstance(event, Finish | Error)
            or _more(event)  # they ended before they began, so there is no time for another attempt
            or not _is_retryable(event)
            or not self._retry(event, attempt)
        ):
            yield event

    def _attempt_of(self, name: str, sample: int, num_ended: int) -> _Attempt:
        """Return the attempt that an event belongs to; remove it if samples have ended."""
        if (name, sample) in self._retries:
            return self._retries.pop((name, sample)) if num_ended else self._retries[name, sample]
        submitted = self._submitted[name]
        submitted.num_open -= num_ended
        if not submitted.num_open:
            del self._submitted[name]
        return _Attempt(submitted.request, submitted.structure, sample)

    def _retry(self, end: Finish | Error, attempt: _Attempt) -> bool:
        """Queue another attempt if one is left; return whether it was queued."""
        if attempt.is_last:
            return False
        request, limits, seconds = attempt.request, attempt.request.limits, attempt.seconds
        if isinstance(end, Finish):
            seconds += end.timings.first_token + end.timings.decode
        if limits.max_time is not None:
            if seconds >= limits.max_time:
                return False
            limits = replace(limits, max_time=limits.max_time - seconds)
        name = f"{request.id}/{attempt.sample}/{attempt.number}"
        seed = derive(derive(request.seed, attempt.sample), attempt.number)
        own = replace(request, id=name, seed=seed, n=1, limits=limits, prompt_logprobs=None)
        self._engine.submit(own)
        self._retries[name, 0] = replace(attempt, number=attempt.number + 1, seconds=seconds)
        return True


def _more(event: Event) -> int:
    return event.more if isinstance(event, Finish) else 0


def _is_retryable(end: Finish | Error) -> bool:
    """Return whether the sample has no valid result and a retry may have one."""
    if isinstance(end, Error):
        return end.type == "EmptySupport"
    return end.verdict is not None and not end.verdict.is_valid and end.reason != "interrupted"
