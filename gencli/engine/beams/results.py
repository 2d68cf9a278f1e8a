"""Scores of finished texts, and the events that report a choice among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gencli.core.events import Candidate, Error, Event, Finish, Token

__all__ = ["Scored", "best_reachable", "chosen_events", "interrupted", "length_score", "rounded"]

# Score, log-probability, Finish event, and the sample's Token events merged into one.
Scored = tuple[float, float, Finish, Token]


def length_score(logprob: float, length: int, penalty: float) -> float:
    """Return logprob / max(length, 1) ** penalty.

    `logprob` is the log-probability of the text, `length` its tokens, EOS included. Only an interrupted text
    has no tokens.
    """
    return float(logprob / max(length, 1) ** penalty)


def best_reachable(logprob: float, length: int, most: int, penalty: float) -> float:
    """Return an upper bound on the score of any continuation of a text of `length` tokens, up to `most`.

    The log-probability of a text can only fall as it grows. So the bound keeps it, and takes the length with
    the best score: the longest for a positive penalty, else the shortest.
    """
    return length_score(logprob, most if penalty > 0 else length + 1, penalty)


def rounded(value: float) -> float:
    """Return the value rounded to four significant digits, for comparison and output of scores.

    Further digits depend, also in float32, on the other sequences of the same forward pass.
    """
    return float(f"{value:.4g}")


def chosen_events(request: str, count: int, scored: Sequence[Scored]) -> list[Event]:
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
