"""The best of several samples: all are drawn, and those of the highest mean logprob are told of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from gencli.beams.results import chosen_events, interrupted
from gencli.beams.score import length_score
from gencli.core.events import Error, Event, Finish, Reading, Token
from gencli.core.request import Request

__all__ = ["BestOf", "widened"]


def widened(request: Request) -> Request:
    """The request as it is to be drawn: with all samples among which it chooses."""
    return request if request.best_of is None else replace(request, n=request.best_of)


@dataclass(slots=True)
class _Pool:
    """How many samples are wanted, the tokens of each so far, and how they ended."""

    wanted: int
    size: int
    ids: dict[int, list[int]] = field(default_factory=dict)
    ends: list[Finish | Error] = field(default_factory=list)


class BestOf:
    """Holds back the events of requests that want the best of their samples, until it is known."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}

    def watch(self, request: Request) -> None:
        """From now on choose among the samples of this request."""
        if request.best_of is not None:
            self._pools[request.id] = _Pool(request.n, request.best_of)

    def told(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events as they are to be told of."""
        for event in events:
            pool = self._pools.get(event.request)
            if pool is None:
                yield event
            elif isinstance(event, Reading):
                if event.sample < pool.wanted:
                    yield event
            elif isinstance(event, Token):
                pool.ids.setdefault(event.sample, []).extend(event.ids)
            else:
                pool.ends.append(event)
                if len(pool.ends) == pool.size:
                    yield from _chosen(self._pools.pop(event.request))


def _chosen(pool: _Pool) -> list[Event]:
    """The best of the samples; those that failed only if all did."""
    finishes = [end for end in pool.ends if isinstance(end, Finish)]
    if not finishes:
        return [replace(end, sample=j) for j, end in enumerate(pool.ends[: pool.wanted])]
    finishes.sort(key=lambda end: end.sample)
    told = [
        (
            length_score(end.logprob, end.completion_tokens, 1.0),
            end.logprob,
            end,
            tuple(pool.ids.get(end.sample, ())),
        )
        for end in finishes
    ]
    events = chosen_events(finishes[0].request, pool.wanted, told)
    # With a sample that was interrupted the choice is none.
    return interrupted(events) if any(end.reason == "interrupted" for end in finishes) else events
