"""What sequences cost in a step that feeds a limited number of tokens, and which drafts fit in."""

from __future__ import annotations

from collections.abc import Mapping

from gencli.core.request import Request
from gencli.engine.sequence import Sequence

__all__ = ["fitting", "lanes_of", "span_cost", "step_limit"]

_USUAL = 512  # tokens of a step: more at once are no faster, and others wait for it


def step_limit(asked: int | None, max_batch: int) -> int:
    """The most tokens of a step; if none is asked for, no less than leaves half of it to prompts."""
    return max(_USUAL, 2 * max_batch) if asked is None else asked


def lanes_of(request: Request) -> int:
    """The lanes of the model that a token is fed to: two where it guides itself."""
    return 2 if request.guidance.is_on and not request.guidance.amateur else 1


def span_cost(sequence: Sequence, end: int) -> int:
    """Tokens that are fed up to `end`, and behind the last one the drafts that must not be cut.

    Those are the drafts that decide their text; others are welcome where there is room.
    """
    request, count = sequence.request, end - sequence.num_computed_tokens
    if end < len(sequence):
        return count
    drafts = (request.num_drafts or 0) if request.drafts_decide else 0
    return count - 1 + lanes_of(request) * (1 + drafts)


def fitting(
    runs: Mapping[int, tuple[int, ...]], lanes: Mapping[int, int], room: int
) -> dict[int, tuple[int, ...]]:
    """The runs by slot, the longest cut to one length, so that they take no more than `room` tokens."""
    longest = max(map(len, runs.values()), default=0)
    while longest and sum(lanes[slot] * min(len(run), longest) for slot, run in runs.items()) > room:
        longest -= 1
    return {slot: run[:longest] for slot, run in runs.items()}
