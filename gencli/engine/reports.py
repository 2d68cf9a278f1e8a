"""What the engine reports: the tokens appended by a step, the final event, scores of finished texts, and
the best of several samples. `Room` records out-of-memory where a step cannot be undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from gencli.core.events import (
    Candidate,
    Error,
    Event,
    Finish,
    PromptScores,
    Reading,
    Timings,
    Token,
    by_sample,
    joined,
)
from gencli.core.request import Request
from gencli.text.text_stream import Finish as Reason
from processors.errors import is_out_of_memory

if TYPE_CHECKING:
    from gencli.engine.sequence import Sequence


class Taken(NamedTuple):
    """Tokens appended to a sequence; `forced`: under a grammar, whether each was the only legal one."""

    ids: tuple[int, ...]
    forced: tuple[bool, ...] = ()


def failed(sequence: Sequence, error: Exception, text: str) -> Error:
    """Return the event of a sequence that failed with `error` after the output `text`."""
    name, count = type(error).__name__, len(sequence.output)
    return Error(sequence.request.id, sequence.sample, name, str(error), text, count, error.__cause__)


def finished(sequence: Sequence, finish: Reason, text: str, now: float) -> Finish:
    """Return the event of a sequence that ended with the output `text` at `now`, in monotonic seconds."""
    started = now if sequence.started is None else sequence.started
    first = now if sequence.first_token is None else sequence.first_token
    return Finish(
        request=sequence.request.id,
        sample=sequence.sample,
        text=text,
        reason=finish.reason,
        matched=finish.matched,
        offset=finish.offset,
        prompt_tokens=len(sequence.prompt),
        completion_tokens=len(sequence.output),
        timings=Timings(
            prefill=first - started,
            decode=now - first,
            first_token=first - sequence.submitted,
            queue=started - sequence.submitted,
        ),
        cached_tokens=sequence.num_cached_tokens,
        document=sequence.document,
        logprob=sequence.logprob,
        drafted=sequence.drafted,
    )


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


# Score, log-probability, Finish event, and the sample's Token events merged into one.
Scored = tuple[float, float, Finish, Token]


def length_score(logprob: float, length: int, penalty: float) -> float:
    """Return logprob / max(length, 1) ** penalty.

    `logprob` is the log-probability of the text, `length` its tokens, EOS included. Only an interrupted text
    has no tokens.
    """
    return float(logprob / max(length, 1) ** penalty)


def best_reachable(logprob: float, length: int, longest: int, penalty: float) -> float:
    """Return an upper bound on the score of any continuation of a text of `length` tokens, up to `longest`.

    The log-probability of a text can only fall as it grows. So the bound keeps it, and takes the length with
    the best score: the longest for a positive penalty, else the shortest.
    """
    return length_score(logprob, longest if penalty > 0 else length + 1, penalty)


def rounded(value: float) -> float:
    """Return the value rounded to four significant digits, for comparison and output of scores.

    Further digits depend, also in float32, on the other sequences of the same forward pass.
    """
    return float(f"{value:.4g}")


def chosen_events(request: str, count: int, scored: Items[Scored]) -> list[Event]:
    """Return the events of the `count` best texts as samples 0, 1, ..., then errors for missing texts.

    Scores are compared with four significant digits; among equal scores the earlier text wins.
    """
    ranked = sorted(scored, key=lambda entry: -rounded(entry[0]))  # stable
    candidates = tuple(
        Candidate(end.text, score, logprob, end.completion_tokens, end.reason)
        for score, logprob, end, _ in ranked
    )
    events: list[Event] = []
    for sample, (score, _, end, tokens) in enumerate(ranked[:count]):
        events.append(replace(tokens, request=request, sample=sample, text=end.text))
        events.append(replace(end, request=request, sample=sample, score=score, candidates=candidates))
    shortage = f"Of {count} texts that are wanted there are only {len(scored)}."
    missing = range(len(scored), count)
    return [*events, *(Error(request, sample, "GenerationError", shortage, "") for sample in missing)]


def interrupted(events: Iterable[Event]) -> list[Event]:
    """Return the events with every finish marked as interrupted, for a choice that was interrupted."""
    return [
        replace(event, reason="interrupted", matched=None) if isinstance(event, Finish) else event
        for event in events
    ]


class Room:
    """A context manager that suppresses out-of-memory errors; the rest of the block is skipped.

    `is_full`: whether memory has run out.
    """

    def __init__(self) -> None:
        self.is_full = False

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        is_full = error is not None and is_out_of_memory(error)
        self.is_full |= is_full
        return is_full
