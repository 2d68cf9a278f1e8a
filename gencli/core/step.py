"""The model input of one step: plain host values, rebuilt every step."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Feed", "StepPlan", "cells_of", "fed_to", "room_for", "rope_factors", "wanted_of"]


def rope_factors(length: int, switches: tuple[int, ...]) -> int:
    """Return the index of the rotary factors for `length` tokens: the number of `switches` below `length`."""
    return bisect_left(switches, length)


class Feed(NamedTuple):
    """Tokens for one KV lane.

    `start`: number of tokens in the lane so far, which is the position of the first fed token. `num_logits`:
    the model returns logits for the last `num_logits` fed positions: 0 for a prompt chunk other than the
    last, 1 for plain decoding, K + 1 for K draft tokens. `text_length`: length of the whole text, for chunks
    with `num_logits` 0. Without it a long-rope model may compute the chunk twice (see ModelSpec).
    `num_scored`: the first `num_scored` of these logits belong to scored prompt positions, where no token is
    chosen.
    """

    lane: int
    start: int
    tokens: tuple[int, ...]
    num_logits: int = 1
    text_length: int = 0
    num_scored: int = 0

    @property
    def end(self) -> int:
        """Number of tokens in the lane after the feed."""
        return self.start + len(self.tokens)

    @property
    def drafts(self) -> tuple[int, ...]:
        """The draft tokens: the last `num_logits` tokens without the first of them."""
        count = self.num_logits - self.num_scored - 1
        return self.tokens[len(self.tokens) - count :] if count > 0 else ()


def cells_of(feeds: Iterable[Feed]) -> list[tuple[int, int]]:
    """Return (lane, position) of every fed token, in feed order."""
    return [(feed.lane, feed.start + index) for feed in feeds for index in range(len(feed.tokens))]


def wanted_of(feeds: Iterable[Feed]) -> list[int]:
    """Return the indices, among all fed tokens in feed order, of the tokens whose logits are needed."""
    wanted: list[int] = []
    end = 0
    for feed in feeds:
        end += len(feed.tokens)
        wanted += range(end - feed.num_logits, end)
    return wanted


def fed_to(lanes: Collection[int], feeds: Iterable[Feed]) -> list[int]:
    """Return the indices, among all fed tokens in feed order, of the tokens fed to these lanes."""
    owners = [feed.lane for feed in feeds for _ in feed.tokens]
    return [index for index, lane in enumerate(owners) if lane in lanes]


def room_for(feeds: Iterable[Feed]) -> tuple[int, int]:
    """Return the size of a cache, (lanes, tokens), that holds all feeds of a step."""
    feeds = tuple(feeds)
    return max(feed.lane for feed in feeds) + 1, max(feed.end for feed in feeds)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """All feeds of one step, at most one per lane. `num_scored`: sum over the feeds."""

    feeds: tuple[Feed, ...]
    num_scored: int = 0

    @property
    def num_rows(self) -> int:
        """Number R of logit rows [R, V] of the step: the sum of `num_logits`, in feed order."""
        return sum([feed.num_logits for feed in self.feeds])

    @property
    def num_tokens(self) -> int:
        """Number of tokens fed over all lanes."""
        return sum([len(feed.tokens) for feed in self.feeds])
