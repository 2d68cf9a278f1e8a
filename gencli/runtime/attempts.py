"""Drawing again what is not valid: an engine's events, with the last attempt of each sample only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gencli.config.structure import OutputSpec
from gencli.core.events import Error, Event, Finish, Reading, Token
from gencli.core.request import Request
from gencli.engine.engine import Engine
from gencli.runtime.structure_cache import PerSpec
from gencli.structured.verdict import OutputValidator
from processors.rng import derive

__all__ = ["RetryingEngine"]


@dataclass(frozen=True, slots=True)
class _Draw:
    """One sample of a request on its way: which attempt it is, and the seconds that went before."""

    request: Request
    structure: OutputSpec | None
    sample: int
    attempt: int = 1
    seconds: float = 0.0

    @property
    def is_last(self) -> bool:
        """Whether no attempt may follow."""
        return self.structure is None or self.attempt > self.structure.retries


@dataclass(slots=True)
class _Asked:
    """A request, and how many of its samples are open in their first draw."""

    request: Request
    structure: OutputSpec | None
    num_open: int


class RetryingEngine:
    """Runs requests and judges their texts; a sample that is not valid has `retries` more draws.

    Attempt k draws with derive(the sample's seed, k). What all attempts take together is held against
    `max_time`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._judges = PerSpec(OutputValidator)
        self._asked: dict[str, _Asked] = {}  # by request, while samples of it are open in their first draw
        self._draws: dict[tuple[str, int], _Draw] = {}  # the later draws, by the engine's names

    def submit(self, request: Request, structure: OutputSpec | None = None) -> None:
        """Queue a request, of whose texts this is asked."""
        self._engine.submit(request)
        self._asked[request.id] = _Asked(request, structure, request.n)

    def run(self) -> Iterator[Event]:
        """Events of all requests, under their own ids, each finish with its verdict.

        More may be submitted between two events.
        """
        for event in self._engine.run():
            yield from self._told(event)

    def end_waiting(self) -> Iterator[Event]:
        """End what has not begun; what runs goes on."""
        for event in self._engine.end_waiting():
            yield from self._told(event)

    def _told(self, event: Event) -> Iterator[Event]:
        is_end = isinstance(event, Finish | Error)
        draw = self._draw(event.request, event.sample, is_end=is_end)
        if draw.attempt > 1:
            event = replace(event, request=draw.request.id, sample=draw.sample)
        if isinstance(event, Finish):
            event = self._judges(draw.structure)(event)
            if event.verdict is not None:
                event = replace(event, verdict=replace(event.verdict, attempts=draw.attempt))
        if isinstance(event, Token | Reading) or not _may_differ(event) or not self._draw_again(event, draw):
            yield event

    def _draw(self, name: str, sample: int, *, is_end: bool) -> _Draw:
        """The draw that an event of the engine belongs to; with its end it is forgotten."""
        if (name, sample) in self._draws:
            return self._draws.pop((name, sample)) if is_end else self._draws[name, sample]
        asked = self._asked[name]
        asked.num_open -= is_end
        if not asked.num_open:
            del self._asked[name]
        return _Draw(asked.request, asked.structure, sample)

    def _draw_again(self, end: Finish | Error, draw: _Draw) -> bool:
        """Whether there is another attempt; it is queued then."""
        if draw.is_last:
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
        self._engine.submit(replace(request, id=name, seed=seed, n=1, limits=limits))
        self._draws[name, 0] = replace(draw, attempt=draw.attempt + 1, seconds=seconds)
        return True


def _may_differ(end: Finish | Error) -> bool:
    """Whether there is no result, and another draw may have one."""
    if isinstance(end, Error):
        return end.type == "EmptySupport"
    return end.verdict is not None and not end.verdict.is_valid and end.reason != "interrupted"
