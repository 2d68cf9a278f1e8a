"""Several cheap drafters at once: each is tried on every text, the one that was right most often answers."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.core.prefixes import shared_length
from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter
from gencli.speculative.draft_sampler import DraftSampler

__all__ = ["AutoDrafter"]

_FADING = 0.95  # of what was right, with each new answer

_Guesses = list[Sequence[int]]  # one a drafter


class AutoDrafter(Drafter):
    """Asks all and passes on the answer of the best; the others' answers are compared with what came as well.

    So all are measured at no cost but their own, which has to be small; on all texts together, but a text
    that drafts decide is measured for itself.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = tuple(drafters)
        self._everywhere = [0.0] * len(self._drafters)  # drafts of an answer that came true, faded
        self._right: dict[int, list[float]] = {}  # the same by slot; those that share it, share it
        self._open: dict[int, tuple[int, _Guesses]] = {}  # by slot: length of the text, what was guessed
        self._answered: dict[int, Drafter] = {}

    def bind(self, chooser: DraftSampler) -> None:
        """See Drafter."""
        for drafter in self._drafters:
            drafter.bind(chooser)

    def handles(self, request: Request) -> bool:
        """See Drafter."""
        return all(drafter.handles(request) for drafter in self._drafters)

    def admit(self, slot: int, request: Request) -> None:
        """See Drafter."""
        self._open.pop(slot, None)
        self._right[slot] = [0.0] * len(self._drafters) if request.drafts_decide else self._everywhere
        for drafter in self._drafters:
            drafter.admit(slot, request)

    def release(self, slot: int) -> None:
        """See Drafter."""
        for drafter in self._drafters:
            drafter.release(slot)

    def trim(self) -> None:
        """See Drafter."""
        for drafter in self._drafters:
            drafter.trim()

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        """See Drafter."""
        for ask in asks:
            self._score(ask)
        columns = [drafter.propose(asks) for drafter in self._drafters]
        return [self._best(ask, [column[i] for column in columns]) for i, ask in enumerate(asks)]

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """See Drafter."""
        self._answered[slot].observe(slot, proposed=proposed, accepted=accepted)

    def _best(self, ask: DraftAsk, guesses: _Guesses) -> Sequence[int]:
        self._open[ask.slot] = len(ask.tokens), guesses
        able = [i for i, guess in enumerate(guesses) if guess]
        if not able:
            return ()
        best = max(able, key=lambda i: self._right[ask.slot][i])  # of equal ones the first
        self._answered[ask.slot] = self._drafters[best]
        return guesses[best]

    def _score(self, ask: DraftAsk) -> None:
        """Compare what was guessed for the slot with what has come since."""
        length, guesses = self._open.pop(ask.slot, (0, ()))
        came, right = ask.tokens[length:], self._right[ask.slot]
        for i, guess in enumerate(guesses):
            right[i] = _FADING * right[i] + shared_length(tuple(guess), tuple(came))
