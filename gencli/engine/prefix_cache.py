"""Prompts that begin alike are read once: who waits for whom, and what is copied from lane to lane."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gencli.core.prefixes import Match, Prefixes, Tokens, is_worth_copying
from gencli.core.step import rope_factors
from gencli.engine.sequence import Sequence

__all__ = ["Fork", "PrefixCache"]


@dataclass(frozen=True, slots=True)
class Fork:
    """Copy a lane's first `length` tokens to another lane before the step."""

    source: int
    target: int
    length: int


class PrefixCache:
    """Knows the prompts that are being read or were read by what runs now, and through `warm` what was.

    A sequence begins when it reads its prompt or has a copy of the beginning. Until then it waits for a
    lane which reads what it needs; only lanes that have begun are waited for, so there are no rounds.

    A model that cannot forget copies whole prompts (all but their last token) only: the lane that is
    copied stops there until the others have their copies.

    `rope_switches` are those of the model's spec: nothing is copied from one side of them to the other.
    """

    def __init__(
        self, warm: Prefixes, *, can_rollback: bool, is_on: bool, rope_switches: tuple[int, ...] = ()
    ) -> None:
        self._warm, self._can_rollback, self._is_on = warm, can_rollback, is_on
        self._rope_switches = rope_switches
        self._prompts = Prefixes()  # of the lanes that have begun
        self._begun: dict[int, Sequence] = {}
        self._awaited: set[Tokens] = set()  # prompts that a model which cannot forget stops for

    def has_begun(self, sequence: Sequence) -> bool:
        """Whether the sequence reads, or has read, what nobody has read for it."""
        return sequence.slot in self._begun

    def begin(self, sequence: Sequence) -> None:
        """From now on others may wait for this one."""
        self._begun[sequence.slot] = sequence
        self._prompts.add(sequence.slot, sequence.prompt[:-1], sequence.rope)

    def leave(self, sequence: Sequence) -> None:
        """The sequence has no slot any more."""
        self._begun.pop(sequence.slot, None)
        self._prompts.remove(sequence.slot)

    def best(self, prompt: Tokens) -> Match:
        """The lane, begun or warm, that shares most with the prompt, if that is worth a copy."""
        if not self._is_on:
            return Match()
        beginning, rope = prompt[:-1], rope_factors(len(prompt), self._rope_switches)
        lanes = (self._prompts, self._warm)
        match = max((one.nearest(beginning, rope) for one in lanes), key=lambda match: match.length)
        if not self._can_rollback:
            is_whole = match.length == len(beginning)
            is_exact = is_whole and match.lane in self._begun and self._is_at(match.lane, match.length)
            return match if is_exact else Match()
        return match if is_worth_copying(match.length, len(beginning)) else Match()

    def forks(self, running: Iterable[Sequence]) -> tuple[Fork, ...]:
        """Copies for sequences that have not begun, where the tokens are there; the rest begins or waits."""
        forks = []
        self._awaited.clear()
        for sequence in running:
            if self.has_begun(sequence):
                continue
            match = self.best(sequence.prompt)
            if match.length == 0:
                self.begin(sequence)
            elif self._holds(match):
                forks.append(Fork(match.lane, sequence.slot, match.length))
                sequence.fed = sequence.cached = match.length
                self.begin(sequence)
            elif not self._can_rollback:
                self._awaited.add(sequence.prompt[:-1])
        return tuple(forks)

    def prefill_end(self, sequence: Sequence) -> int:
        """How far the sequence may be fed now."""
        if not self.has_begun(sequence):
            return sequence.fed
        shared = len(sequence.prompt) - 1
        is_awaited = sequence.fed < shared and sequence.prompt[:-1] in self._awaited
        return shared if is_awaited else len(sequence)

    def _holds(self, match: Match) -> bool:
        sequence = self._begun.get(match.lane)
        return sequence is None or sequence.fed >= match.length

    def _is_at(self, lane: int, length: int) -> bool:
        """Whether a lane of a model that cannot forget reads just these tokens and no more yet."""
        return len(self._prompts[lane]) == length and self._begun[lane].fed <= length
