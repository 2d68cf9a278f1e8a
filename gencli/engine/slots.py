"""Idle slots, and the texts that their KV lanes still hold."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from gencli.core.request import Kind, Prefixes, Tokens, shared_length
from gencli.engine.sequence import Sequence

__all__ = ["Slots"]


@dataclass(frozen=True, slots=True)
class _Parked:
    """A session's lane between two requests.

    It holds `num_held` tokens; the first of them, `tokens`, are valid.

    `kind`: see Sequence.kind.
    """

    slot: int
    tokens: Tokens
    num_held: int
    kind: Kind


class Slots:
    """Owns the idle slots. A finished sequence leaves its lane warm: its KV serves as prefix cache.

    The lane of a session is parked for the session's next request. Order in which slots are taken: the
    session's own, a warm one that shares a prefix with the prompt, an empty one, the oldest warm one, the
    oldest parked one.

    `stays_warm` is false if prefix sharing is off, and for models without rollback, which cannot truncate a
    lane to the shared prefix. `most`: number of lanes that may hold tokens while some are warm; it keeps
    lanes of finished sequences from filling the memory again after out-of-memory.
    """

    def __init__(self, count: int, *, can_rollback: bool, stays_warm: bool) -> None:
        self.warm = Prefixes()
        self._count = self.most = count
        self._empty: list[int] = [*range(count)]
        self._age: dict[int, None] = {}  # the warm slots, the oldest first
        self._parked: dict[str, _Parked] = {}  # by session, the oldest first
        self._can_rollback, self._stays_warm = can_rollback, stays_warm

    def __len__(self) -> int:
        return len(self._empty) + len(self._age) + len(self._parked)

    @property
    def num_idle(self) -> int:
        """The number of idle slots whose lanes hold tokens."""
        return len(self._age) + len(self._parked)

    def take(self, sequence: Sequence, *, rope: int, at_least: int) -> tuple[int, int]:
        """Return a slot, and the number of cached prompt tokens in its lane, computed with factors `rope`.

        A warm lane with fewer than `at_least` cached tokens is not preferred. Only `reusable` tokens count.
        """
        beginning, kind = sequence.reusable, (rope, sequence.request.salt)
        parked = self._parked.pop(sequence.request.session, None)
        if parked is not None:
            return parked.slot, self._kept(parked, beginning) if parked.kind == kind else 0
        match = self.warm.nearest(beginning, kind)
        if match.length >= max(1, at_least):
            self._cool(match.lane)
            return match.lane, match.length
        return self._unused(), 0

    def reserve(self, count: int) -> list[int]:
        """Return `count` slots whose lanes the caller has to empty."""
        return [self._unused() for _ in range(count)]

    def put(self, sequence: Sequence) -> list[int]:
        """Free a sequence's slot. Return the slots whose lanes the caller has to empty."""
        slot, session = sequence.slot, sequence.request.session
        # After the last token the lane may hold rejected drafts.
        tokens = sequence.tokens(0, min(sequence.num_computed_tokens, len(sequence) - 1))
        freed = []
        if session:
            if (parked := self._parked.pop(session, None)) is not None:
                freed = [parked.slot]
            self._parked[session] = _Parked(slot, tokens, sequence.num_computed_tokens, sequence.kind)
        elif self._stays_warm and tokens:
            self.warm.add(slot, tokens, sequence.kind)
            self._age[slot] = None
        else:
            freed = [slot]
        return self.free(freed)

    def free(self, slots: Iterable[int]) -> list[int]:
        """Free slots. Return them: the caller has to empty their lanes."""
        freed = [*slots]
        for slot in freed:
            heapq.heappush(self._empty, slot)
        return freed

    def clear(self) -> list[int]:
        """Make all slots idle. Return them: the caller has to empty their lanes."""
        self._parked.clear()
        self._age.clear()
        self.warm.clear()
        self._empty = [*range(self._count)]
        return [*self._empty]

    def _kept(self, parked: _Parked, beginning: Tokens) -> int:
        kept = shared_length(parked.tokens, beginning)
        return kept if self._can_rollback or kept == parked.num_held else 0

    def _unused(self) -> int:
        has_room = self._count - len(self._empty) < self.most or not self.num_idle
        if self._empty and has_room:
            return heapq.heappop(self._empty)
        if self._age:
            slot = next(iter(self._age))
            self._cool(slot)
            return slot
        return self._parked.pop(next(iter(self._parked))).slot

    def _cool(self, slot: int) -> None:
        del self._age[slot]
        self.warm.remove(slot)
