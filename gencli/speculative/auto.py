"""Several cheap drafters at once: the one with the most accepted draft tokens proposes."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.core.prefixes import shared_length
from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter
from gencli.speculative.draft_sampler import DraftSampler

__all__ = ["AutoDrafter"]

_DECAY = 0.95  # weight of past proposals, with each new one

_Proposals = list[Sequence[int]]  # one per drafter


class AutoDrafter(Drafter):
    """Asks all drafters and returns the proposal of the best one.

    Score of a drafter: number of proposed tokens that matched the text, exponentially decayed. Unused
    proposals are scored too. All texts share one score, except requests with `drafts_decide`, which have
    their own.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = tuple(drafters)
        self._shared_scores = [0.0] * len(self._drafters)  # matching tokens by drafter, decayed
        self._scores: dict[int, list[float]] = {}  # the scores of a slot, possibly `_shared_scores` itself
        self._pending: dict[int, tuple[int, _Proposals]] = {}  # by slot: length of the text, proposals
        self._chosen: dict[int, Drafter] = {}

    def bind(self, chooser: DraftSampler) -> None:
        for drafter in self._drafters:
            drafter.bind(chooser)

    def handles(self, request: Request) -> bool:
        return all(drafter.handles(request) for drafter in self._drafters)

    def admit(self, slot: int, request: Request) -> None:
        self._pending.pop(slot, None)
        self._scores[slot] = [0.0] * len(self._drafters) if request.drafts_decide else self._shared_scores
        for drafter in self._drafters:
            drafter.admit(slot, request)

    def release(self, slot: int) -> None:
        for drafter in self._drafters:
            drafter.release(slot)

    def trim(self) -> None:
        for drafter in self._drafters:
            drafter.trim()

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        for ask in asks:
            self._score(ask)
        columns = [drafter.propose(asks) for drafter in self._drafters]
        return [self._best(ask, [column[i] for column in columns]) for i, ask in enumerate(asks)]

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        self._chosen[slot].observe(slot, proposed=proposed, accepted=accepted)

    def _best(self, ask: DraftAsk, proposals: _Proposals) -> Sequence[int]:
        self._pending[ask.slot] = len(ask.tokens), proposals
        candidates = [i for i, proposal in enumerate(proposals) if proposal]
        if not candidates:
            return ()
        best = max(candidates, key=lambda i: self._scores[ask.slot][i])  # the first of equals
        self._chosen[ask.slot] = self._drafters[best]
        return proposals[best]

    def _score(self, ask: DraftAsk) -> None:
        """Score the last proposals for the slot against the tokens generated since."""
        length, proposals = self._pending.pop(ask.slot, (0, ()))
        generated, scores = ask.tokens[length:], self._scores[ask.slot]
        for i, proposal in enumerate(proposals):
            scores[i] = _DECAY * scores[i] + shared_length(tuple(proposal), tuple(generated))
