"""Drawing again what is not valid: an engine's events, with the last attempt of each sample only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gencli.engine import Engine
from gencli.events import Error, Event, Finish, Token
from gencli.request import Request
from gencli.structured.verdict import Judge
from gencli.structured.wanted import Structure
from processors.rng import derive

__all__ = ["Attempts"]


@dataclass(frozen=True, slots=True)
class _Draw:
    """One sample of a request on its way: which attempt it is, and the seconds that went before."""

    request: Request
    sample: int
    attempt: int = 1
    seconds: float = 0.0


class Attempts:
    """Runs requests and judges their texts; a sample that is not valid has `retries` more draws.

    Attempt k draws with derive(the sample's seed, k). What all attempts take together is held against
    `max_time`.
    """

    def __init__(self, engine: Engine, structure: Structure | None) -> None:
        self._engine = engine
        self._judge = Judge(structure)
        self._most = 1 + (structure.retries if structure else 0)
        self._requests: dict[str, Request] = {}
        self._again: dict[str, _Draw] = {}  # by the id of the request that draws again

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self._engine.submit(request)
        self._requests[request.id] = request

    def run(self) -> Iterator[Event]:
        """Events of all requests, under their own ids, each finish with its verdict."""
        for event in self._engine.run():
            draw = self._again.get(event.request) or _Draw(self._requests[event.request], event.sample)
            event = replace(event, request=draw.request.id, sample=draw.sample)
            if isinstance(event, Finish):
                event = self._judge(event)
                if event.verdict is not None:
                    event = replace(event, verdict=replace(event.verdict, attempts=draw.attempt))
            if isinstance(event, Token) or not _may_differ(event) or not self._draw_again(event, draw):
                yield event

    def _draw_again(self, end: Finish | Error, draw: _Draw) -> bool:
        """Whether there is another attempt; it is queued then."""
        if draw.attempt == self._most:
            return False
        request, limits, seconds = draw.request, draw.request.limits, draw.seconds
        if isinstance(end, Finish):
            seconds += end.timings.first_token + end.timings.decode
        if limits.max_time is not None:
            if seconds >= limits.max_time:
                return False
            limits = replace(limits, max_time=limits.max_time - seconds)
        name = f"{request.id}/{draw.sample}/{draw.attempt}"
        seed = derive(derive(request.seed, draw.sample), draw.attempt)
        self._again[name] = _Draw(request, draw.sample, draw.attempt + 1, seconds)
        self._engine.submit(replace(request, id=name, seed=seed, n=1, limits=limits))
        return True


def _may_differ(end: Finish | Error) -> bool:
    """Whether there is no result, and another draw may have one."""
    if isinstance(end, Error):
        return end.type == "EmptySupport"
    return end.verdict is not None and not end.verdict.is_valid and end.reason != "interrupted"
