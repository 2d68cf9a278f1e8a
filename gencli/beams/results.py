"""The events that tell of a choice among finished texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gencli.beams.score import rounded
from gencli.core.events import Candidate, Error, Event, Finish, Token

__all__ = ["Scored", "chosen_events", "interrupted"]

Scored = tuple[float, float, Finish, tuple[int, ...]]  # score, sum of logprobs, the text's end, its tokens


def chosen_events(request: str, count: int, scored: Sequence[Scored]) -> list[Event]:
    """The `count` texts of the highest scores as samples 0, 1, ...; of equal scores those that come first.

    Scores are equal if their four significant digits are. Where there are fewer texts, the samples that are
    left fail.
    """
    ranked = sorted(scored, key=lambda entry: -rounded(entry[0]))  # stable
    candidates = tuple(
        Candidate(end.text, score, logprob, end.completion_tokens, end.reason)
        for score, logprob, end, _ in ranked
    )
    events: list[Event] = []
    for sample, (score, _, end, ids) in enumerate(ranked[:count]):
        events.append(Token(request, sample, end.text, ids))
        events.append(replace(end, request=request, sample=sample, score=score, candidates=candidates))
    shortage = f"Of {count} texts that are wanted there are only {len(scored)}."
    missing = range(len(scored), count)
    return [*events, *(Error(request, sample, "GenerationError", shortage, "") for sample in missing)]


def interrupted(events: Iterable[Event]) -> list[Event]:
    """The events of a choice that was interrupted: whatever ended a text, it is no result."""
    return [
        replace(event, reason="interrupted", matched=None) if isinstance(event, Finish) else event
        for event in events
    ]
