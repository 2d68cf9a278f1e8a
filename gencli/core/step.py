"""What one step feeds to the model: plain host values, rebuilt every step."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

__all__ = ["Feed", "StepPlan", "rope_factors"]


def rope_factors(length: int, switches: tuple[int, ...]) -> int:
    """Which rotary factors a text of `length` tokens is read with: 0 up to the first switch, then 1."""
    return bisect_left(switches, length)


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens for one KV lane.

    `start` is the number of tokens the lane holds already: the first fed token takes position
    `start`. Logits are wanted for the last `wanted` fed positions: 0 for a prompt chunk that is
    not the last one, 1 for plain decoding, K + 1 for K drafts. `text_length` is the length of the text
    that such a chunk belongs to; without it a long-rope model may read the chunk twice (see ModelSpec).
    """

    lane: int
    start: int
    tokens: tuple[int, ...]
    wanted: int = 1
    text_length: int = 0

    @property
    def drafts(self) -> tuple[int, ...]:
        """The fed tokens that are guesses: all wanted ones but the first."""
        return self.tokens[len(self.tokens) - self.wanted + 1 :] if self.wanted > 1 else ()


@dataclass(frozen=True, slots=True)
class StepPlan:
    """All feeds of one step, one per lane at the most."""

    feeds: tuple[Feed, ...]

    @property
    def num_rows(self) -> int:
        """Number of logit rows the step yields: the feeds' wanted positions, in feed order."""
        return sum(feed.wanted for feed in self.feeds)

    @property
    def num_tokens(self) -> int:
        """Number of tokens fed over all lanes."""
        return sum(len(feed.tokens) for feed in self.feeds)
