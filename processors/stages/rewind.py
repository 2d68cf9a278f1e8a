"""`Rewinder`: finds banned texts in tokens that are not committed yet, and takes the tokens back."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Sequence

from processors.base import Settled
from processors.stages.automaton import Automaton

__all__ = ["MOST_HELD", "MOST_REWINDS", "Rewinder"]

MOST_REWINDS = 32  # rewinds without a new certain token; then the texts are masked until there is one
MOST_HELD = 64  # limit of held tokens, each of which is a row of logits in the next step


class Rewinder:
    """Banned texts of a slot, and the state of their automaton after its certain output.

    Tokens whose bytes may still become a banned text are held. If a text is complete, the output is cut back
    to the token with the text's first byte, or to the first token that is not certain. The id at that
    position is banned there as long as the tokens before it stay. Tokens are processed one by one, so the
    result does not depend on how many tokens a step chose.
    """

    def __init__(self, automaton: Automaton, token_bytes: Sequence[bytes]) -> None:
        self._automaton, self._token_bytes = automaton, token_bytes
        self._state = 0  # automaton state after the certain tokens
        self._count = 0  # number of certain output tokens
        self._bans: dict[int, set[int]] = {}  # banned ids by output position
        self._held: tuple[int, ...] = ()
        self._misses = 0  # rewinds since a token became certain

    @property
    def is_masking(self) -> bool:
        """Whether the texts have to be masked, after MOST_REWINDS rewinds without a certain token."""
        return self._misses >= MOST_REWINDS

    @property
    def has_bans(self) -> bool:
        """Whether any id is banned at a position."""
        return bool(self._bans)

    def banned(self, drafts: int) -> set[int]:
        """Return the ids banned after this number of drafts."""
        return self._bans.get(self._count + drafts, set())

    def fork(self) -> Rewinder:
        """Return an independent copy."""
        other = copy.copy(self)
        other._bans = {position: {*ids} for position, ids in self._bans.items()}
        return other

    def read(self, tokens: Sequence[int]) -> None:
        """Advance by certain tokens."""
        for token in tokens:
            self._state = self._step(self._state, token)[0]
        if self._held[: len(tokens)] == tuple(tokens):
            self._held = self._held[len(tokens) :]
        self._count += len(tokens)
        self._bans = {position: ids for position, ids in self._bans.items() if position >= self._count}

    def read_prompt(self, tokens: Sequence[int]) -> None:
        """Read the end of the prompt, in which a text may begin."""
        longest, size, first = max(self._automaton.depth), 0, len(tokens)
        while first and size < longest:
            first -= 1
            size += len(self._token_bytes[tokens[first]])
        self.read(tokens[first:])
        self._count = 0

    def may_hold(self, tokens: Sequence[int]) -> bool:
        """Whether `settle` may hold or take back any of these tokens."""
        state = self._state
        for token in tokens:
            state, end, _ = self._step(state, token)
            if end or self._automaton.depth[state]:
                return True
        return self._misses > 0

    def settle(self, tokens: Sequence[int], *, is_final: bool) -> Settled:
        """Hold tokens that may begin a banned text, and take a complete one back; see Processor.settle."""
        self._forget_behind(tokens)
        ends, state, certain = [0], self._state, 0  # end offset in bytes of each token
        for index, token in enumerate(tokens):
            size = len(self._token_bytes[token]) if token < len(self._token_bytes) else 0
            ends.append(ends[-1] + size)
            state, length, end = self._step(state, token)
            if length:
                began = _token_at(ends, ends[index] + end - length)
                return self._back(tokens, certain, max(certain, began))
            depth = self._automaton.depth[state]
            safe = _token_at(ends, ends[-1] - depth) if depth else index + 1
            safe = max(safe, index + 1 - MOST_HELD)
            if safe > certain:
                certain, was_masking, self._misses = safe, self.is_masking, 0
                if was_masking and index + 1 < len(tokens):  # the tokens after it were chosen under the mask
                    return self._keep(tokens[: index + 1], certain, is_whole=False)
        return self._keep(tokens, len(tokens) if is_final else certain)

    def _keep(self, tokens: Sequence[int], certain: int, *, is_whole: bool = True) -> Settled:
        self._held = tuple(tokens)
        return Settled(certain, len(tokens) - certain, is_whole)

    def _back(self, tokens: Sequence[int], certain: int, place: int) -> Settled:
        """Cut the output back to before the token at `place`, and ban that id at its position."""
        position = self._count + place
        self._bans.setdefault(position, set()).add(tokens[place])
        self._bans = {at: ids for at, ids in self._bans.items() if at <= position}
        self._misses += 1
        return self._keep(tokens[:place], certain, is_whole=False)

    def _forget_behind(self, tokens: Sequence[int]) -> None:
        """Drop the bans after a held token that came out differently, as rounding differs between batches."""
        pairs = enumerate(zip(self._held, tokens, strict=False))
        if (first := next((n for n, (old, new) in pairs if old != new), None)) is not None:
            self._bans = {at: ids for at, ids in self._bans.items() if at <= self._count + first}

    def _step(self, state: int, token: int) -> tuple[int, int, int]:
        """Return the state after a token, the length of a text that ends in it (0: none), and its end."""
        table, ending = self._automaton.table, self._automaton.ending
        length, end = 0, 0
        data = self._token_bytes[token] if token < len(self._token_bytes) else b""
        for place, byte in enumerate(data, start=1):
            state = table[state][byte]
            if ending[state] and not length:
                length, end = ending[state], place
        return state, length, end


def _token_at(ends: Sequence[int], byte: int) -> int:
    """Return the index of the token that contains a byte, -1 for a byte before all.

    `ends`: 0, then end offsets.
    """
    return bisect_right(ends, byte) - 1
