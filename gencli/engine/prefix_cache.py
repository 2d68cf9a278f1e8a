"""Prefix cache: computes common prompt prefixes once and copies them between KV lanes."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

from gencli.core.request import Match, Prefixes, Tokens, is_worth_copying, rope_factors
from gencli.engine.sequence import Sequence

__all__ = ["Fork", "PrefixCache"]


@dataclass(frozen=True, slots=True)
class Fork:
    """Copy a lane's first `length` tokens to another lane before the step."""

    source: int
    target: int
    length: int


class PrefixCache:
    """Prompts of running sequences, and (`warm`) texts of finished ones whose KV is still in a lane.

    A sequence begins when it starts its prefill or receives a copy of a prefix. Until then it waits for a
    lane that computes its prefix. Only begun sequences are waited for, so there are no circular waits.

    Models without rollback can copy a whole prompt (all but its last token) only: the source lane stops there
    until the waiting sequences have their copies.

    `rope_switches` is ModelSpec.rope_switches: no prefix is shared across a switch.
    """

    def __init__(
        self, warm: Prefixes, *, can_rollback: bool, is_on: bool, rope_switches: tuple[int, ...] = ()
    ) -> None:
        self._warm, self._can_rollback, self._is_on = warm, can_rollback, is_on
        self._rope_switches = rope_switches
        self._prompts = Prefixes()  # prompts of begun sequences, by lane
        self._begun: dict[int, Sequence] = {}
        self._awaited: set[Tokens] = set()  # without rollback: prompts whose lane stops until it is copied

    def has_begun(self, sequence: Sequence) -> bool:
        """Whether the sequence has started its prefill or received its copy."""
        return sequence.slot in self._begun

    def begin(self, sequence: Sequence) -> None:
        """Start the sequence's prefill; other sequences may wait for its prefix from now on."""
        self._begun[sequence.slot] = sequence
        self._prompts.add(sequence.slot, sequence.prompt[:-1], sequence.kind)

    def leave(self, sequence: Sequence) -> None:
        """Remove a sequence that gives up its slot."""
        self._begun.pop(sequence.slot, None)
        self._prompts.remove(sequence.slot)

    def best(self, prompt: Tokens, most: int | None = None, *, salt: str = "") -> Match:
        """Return the lane, begun or warm, with the longest shared prefix, if the prefix is worth a copy.

        `most`: number of tokens that may be copied; by default all but the last. `salt`: salt of the request.
        """
        if not self._is_on:
            return Match()
        beginning = prompt[: -1 if most is None else most]
        kind = rope_factors(len(prompt), self._rope_switches), salt
        lanes = (self._prompts, self._warm)
        match = max((one.nearest(beginning, kind) for one in lanes), key=lambda match: match.length)
        if not self._can_rollback:
            is_whole = match.length == len(beginning)
            is_exact = is_whole and match.lane in self._begun and self._is_at(match.lane, match.length)
            return match if is_exact else Match()
        return match if is_worth_copying(match.length, len(beginning)) else Match()

    def forks(self, running: Items[Sequence]) -> tuple[Fork, ...]:
        """Return the copies for this step. Sequences without a match begin; others wait for their prefix."""
        self._awaited.clear()
        if len(self._begun) == len(running):
            return ()
        forks = []
        for sequence in running:
            if self.has_begun(sequence):
                continue
            match = self.best(sequence.prompt, len(sequence.reusable), salt=sequence.request.salt)
            if match.length == 0:
                self.begin(sequence)
            elif self._holds(match):
                forks.append(Fork(match.lane, sequence.slot, match.length))
                sequence.reuse(match.length)
                self.begin(sequence)
            elif not self._can_rollback:
                self._awaited.add(sequence.reusable)
        return tuple(forks)

    def prefill_end(self, sequence: Sequence) -> int:
        """Return the number of tokens up to which the sequence may be fed in this step."""
        if not self.has_begun(sequence):
            return sequence.num_computed_tokens
        shared = len(sequence.prompt) - 1
        is_awaited = sequence.num_computed_tokens < shared and sequence.prompt[:-1] in self._awaited
        return shared if is_awaited else len(sequence)

    def _holds(self, match: Match) -> bool:
        sequence = self._begun.get(match.lane)
        return sequence is None or sequence.num_computed_tokens >= match.length

    def _is_at(self, lane: int, length: int) -> bool:
        """Whether a lane holds exactly a prompt of `length` tokens, and no more."""
        return len(self._prompts[lane]) == length and self._begun[lane].num_computed_tokens <= length
