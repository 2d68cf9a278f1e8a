"""Several drafters in order: for each slot the first with draft tokens proposes. The engine's own drafter."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter, Measured
from gencli.speculative.draft_sampler import DraftSampler
from gencli.speculative.forced_text import ForcedTextDrafter
from processors.history import History
from processors.pipeline import Pipeline
from processors.sampler import Sampler

__all__ = ["FallbackDrafter", "make_engine_drafter"]


class FallbackDrafter(Drafter):
    """Asks its drafters in their order, each for the slots that have no drafts yet."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = tuple(drafters)
        self.notices = tuple(text for drafter in self._drafters for text in drafter.notices)
        self._by_slot: dict[int, tuple[Drafter, ...]] = {}  # drafters that handle the slot's request
        self._proposer: dict[int, Drafter] = {}

    def bind(self, chooser: DraftSampler) -> None:
        for drafter in self._drafters:
            drafter.bind(chooser)

    def handles(self, request: Request) -> bool:
        return any(drafter.handles(request) for drafter in self._drafters)

    def is_autoregressive_for(self, request: Request) -> bool:
        return any(drafter.is_autoregressive_for(request) for drafter in self._drafters)

    def admit(self, slot: int, request: Request) -> None:
        self._by_slot[slot] = tuple(drafter for drafter in self._drafters if drafter.handles(request))
        for drafter in self._by_slot[slot]:
            drafter.admit(slot, request)

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        found: dict[int, Sequence[int]] = {}
        for drafter in self._drafters:
            open_asks = [ask for ask in asks if ask.slot not in found and drafter in self._by_slot[ask.slot]]
            for ask, run in zip(open_asks, drafter.propose(open_asks) if open_asks else (), strict=True):
                if run:
                    found[ask.slot], self._proposer[ask.slot] = run, drafter
        return [found.get(ask.slot, ()) for ask in asks]

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """Tell the drafter that proposed them."""
        self._proposer[slot].observe(slot, proposed=proposed, accepted=accepted)

    def measure(self, step: Measured) -> None:
        for drafter in self._drafters:
            drafter.measure(step)

    def release(self, slot: int) -> None:
        self._proposer.pop(slot, None)
        for drafter in self._by_slot.pop(slot):
            drafter.release(slot)

    def trim(self) -> None:
        for drafter in self._drafters:
            drafter.trim()


def make_engine_drafter(
    drafter: Drafter | None, pipeline: Pipeline, sampler: Sampler, history: History
) -> FallbackDrafter:
    """Combine jump-forward with `drafter`, and bind both to a sampler with the engine's pipeline."""
    requested = drafter or FallbackDrafter(())
    combined = FallbackDrafter([ForcedTextDrafter(pipeline, requested), requested])
    combined.bind(DraftSampler(pipeline, sampler, history))
    return combined
