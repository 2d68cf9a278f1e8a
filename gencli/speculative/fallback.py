"""Several drafters in a row: the first that has an answer for a slot gives it."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter, Measured
from gencli.speculative.draft_sampler import DraftSampler

__all__ = ["FallbackDrafter"]


class FallbackDrafter(Drafter):
    """Asks its drafters in their order, each for the slots that have no drafts yet."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = tuple(drafters)
        self.notices = tuple(text for drafter in self._drafters for text in drafter.notices)
        self._of: dict[int, tuple[Drafter, ...]] = {}  # those that handle the slot's request
        self._answered: dict[int, Drafter] = {}

    def bind(self, chooser: DraftSampler) -> None:
        """Tell all."""
        for drafter in self._drafters:
            drafter.bind(chooser)

    def handles(self, request: Request) -> bool:
        """Whether any of them does."""
        return any(drafter.handles(request) for drafter in self._drafters)

    def passes_for(self, request: Request) -> bool:
        """Whether any of them may have such drafts for it."""
        return any(drafter.passes_for(request) for drafter in self._drafters)

    def admit(self, slot: int, request: Request) -> None:
        """Tell those that handle the request."""
        self._of[slot] = tuple(drafter for drafter in self._drafters if drafter.handles(request))
        for drafter in self._of[slot]:
            drafter.admit(slot, request)

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        """See Drafter."""
        found: dict[int, Sequence[int]] = {}
        for drafter in self._drafters:
            mine = [ask for ask in asks if ask.slot not in found and drafter in self._of[ask.slot]]
            for ask, run in zip(mine, drafter.propose(mine) if mine else (), strict=True):
                if run:
                    found[ask.slot], self._answered[ask.slot] = run, drafter
        return [found.get(ask.slot, ()) for ask in asks]

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """Tell the one whose drafts they were."""
        self._answered[slot].observe(slot, proposed=proposed, accepted=accepted)

    def measure(self, step: Measured) -> None:
        """Tell all."""
        for drafter in self._drafters:
            drafter.measure(step)

    def release(self, slot: int) -> None:
        """Tell all that were told of the sample."""
        self._answered.pop(slot, None)
        for drafter in self._of.pop(slot):
            drafter.release(slot)

    def trim(self) -> None:
        """Tell all."""
        for drafter in self._drafters:
            drafter.trim()
