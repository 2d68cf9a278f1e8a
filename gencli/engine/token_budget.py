"""The token budget of a step: cost of a sequence, and how many drafts fit."""

from __future__ import annotations

from collections.abc import Mapping

from gencli.engine.sequence import Sequence

__all__ = ["fitting", "span_cost", "step_limit"]

_DEFAULT = 512  # tokens per step; larger steps are not faster per token, and running texts wait for them


def step_limit(asked: int | None, max_batch: int) -> int:
    """Return the token budget of a step: `asked`, or by default 512 but at least twice `max_batch`."""
    return max(_DEFAULT, 2 * max_batch) if asked is None else asked


def span_cost(sequence: Sequence, end: int) -> int:
    """Return the tokens fed up to `end` over all lanes, plus the draft tokens that must not be cut.

    These are the drafts of requests with `drafts_decide`; other drafts only use the rest of the budget.
    """
    count = end - sequence.num_computed_tokens
    return count if end < len(sequence) else count - 1 + sequence.decode_cost


def fitting(
    runs: Mapping[int, tuple[int, ...]], lanes: Mapping[int, int], room: int
) -> dict[int, tuple[int, ...]]:
    """Cut the longest runs of drafts to a common length so that all runs take at most `room` tokens."""
    longest = max(map(len, runs.values()), default=0)
    while longest and sum(lanes[slot] * min(len(run), longest) for slot, run in runs.items()) > room:
        longest -= 1
    return {slot: run[:longest] for slot, run in runs.items()}
