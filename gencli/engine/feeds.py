"""Feeds of a step: the tokens fed to each lane, and the sequences whose next token is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gencli.core.request import Feed, StepPlan
from gencli.engine.prefix_cache import Fork
from gencli.engine.sequence import Sequence

__all__ = ["Propose", "SampledSequences", "Step", "decode_feed", "span_feed"]

# Sequences whose next token a step chooses, each with its draft tokens.
SampledSequences = list[tuple[Sequence, tuple[int, ...]]]
Propose = Callable[[list[Sequence]], dict[int, tuple[int, ...]]]  # drafts by slot


@dataclass(frozen=True, slots=True)
class Step:
    """The feeds of a step, and the sequence of each feed.

    `sampled`: the sequences whose next token this step chooses, with their drafts, in feed order.
    """

    plan: StepPlan
    sequences: tuple[Sequence, ...]
    sampled: SampledSequences
    forks: tuple[Fork, ...]


def decode_feed(sequence: Sequence, drafts: tuple[int, ...]) -> Feed:
    """Return the feed of the last committed token followed by the drafts."""
    return Feed(sequence.slot, sequence.num_computed_tokens, (sequence.last, *drafts), 1 + len(drafts))


def span_feed(sequence: Sequence, end: int, drafts: tuple[int, ...]) -> Feed:
    """Return the feed of the tokens up to `end`; drafts follow only the last committed token."""
    start, is_prefill = sequence.num_computed_tokens, end < len(sequence)
    scored = sequence.scoring.num_rows(start, end) if sequence.scoring else 0
    num_logits = scored + (0 if is_prefill else 1 + len(drafts))
    tokens = sequence.tokens(start, end) + drafts
    return Feed(sequence.slot, start, tokens, num_logits, len(sequence) if is_prefill else 0, scored)
