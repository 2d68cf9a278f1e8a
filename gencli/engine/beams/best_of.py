"""Best of several samples: draw all of them, report those with the highest mean log-probability."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from gencli.core.events import Error, Event, Finish, PromptScores, Reading, Token, by_sample, joined
from gencli.core.request import Request
from gencli.engine.beams.results import chosen_events, interrupted, length_score

__all__ = ["BestOf", "expand_samples"]


def expand_samples(request: Request) -> Request:
    """Return the request with n = best_of, so that all samples are drawn."""
    return request if request.best_of is None else replace(request, n=request.best_of)


@dataclass(slots=True)
class _Pool:
    """Samples of one request: number wanted, number drawn, and tokens and final events so far."""

    wanted: int
    size: int
    tokens: dict[int, list[Token]] = field(default_factory=dict)
    ends: list[Finish | Error] = field(default_factory=list)


class BestOf:
    """Chooses among samples of requests with `best_of`; holds events back until all samples have ended."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}

    def watch(self, request: Request) -> None:
        """Register a request, if it has `best_of`."""
        if request.best_of is not None:
            self._pools[request.id] = _Pool(request.n, request.best_of)

    def select(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events; for a `best_of` request only prompt progress, then the best samples."""
        if not self._pools:
            yield from events
            return
        for event in by_sample(events):
            pool = self._pools.get(event.request)
            if pool is None or isinstance(event, PromptScores):
                yield event
            elif isinstance(event, Reading):
                if event.sample < pool.wanted:
                    yield event
            elif isinstance(event, Token):
                pool.tokens.setdefault(event.sample, []).append(event)
            else:
                pool.ends.append(event)
                if len(pool.ends) == pool.size:
                    yield from _chosen(self._pools.pop(event.request))


def _chosen(pool: _Pool) -> list[Event]:
    """Return the events of the best samples; failed ones only if all failed."""
    finishes = [end for end in pool.ends if isinstance(end, Finish)]
    if not finishes:
        return [replace(end, sample=j) for j, end in enumerate(pool.ends[: pool.wanted])]
    finishes.sort(key=lambda end: end.sample)
    scored = [
        (
            length_score(end.logprob, end.completion_tokens, 1.0),
            end.logprob,
            end,
            joined(pool.tokens.get(end.sample) or [Token(end.request, end.sample, "", ())]),
        )
        for end in finishes
    ]
    events = chosen_events(finishes[0].request, pool.wanted, scored)
    # A choice with an interrupted sample is itself interrupted.
    return interrupted(events) if any(end.reason == "interrupted" for end in finishes) else events
