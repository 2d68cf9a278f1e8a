"""Drafts of a trained head, from hidden states of the target; the head of a folder or of the target's."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.models.model_runner import ModelSpec
from gencli.speculative.draft_model import AutoregressiveDrafter
from gencli.speculative.drafter import DraftAsk, Features
from gencli.speculative.head_lanes import HeadLanes, MedusaLanes
from gencli.speculative.head_models import Head, MedusaHead


class HeadDrafter(AutoregressiveDrafter):
    """Drafts with a head of a target with this `spec`, for slots below `max_lanes`."""

    _lanes: HeadLanes | MedusaLanes

    def __init__(
        self,
        head: Head,
        spec: ModelSpec,
        *,
        max_lanes: int,
        notices: tuple[str, ...] = (),
    ) -> None:
        super().__init__(make_lanes(head, spec, max_lanes=max_lanes))
        self.taps, self.notices = head.taps, notices

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        runs = super().propose(asks)
        self.is_reading = self._lanes.is_reading
        return runs

    def feed(self, parts: Sequence[Features]) -> None:
        self._lanes.feed(parts)

    def fork(self, source: int, target: int) -> None:
        self._lanes.fork(source, target)


def make_lanes(head: Head, spec: ModelSpec, *, max_lanes: int) -> HeadLanes | MedusaLanes:
    """Return lanes of a head for the slots below `max_lanes`; `spec` is the target's."""
    if isinstance(head, MedusaHead):
        return MedusaLanes(head, spec)
    return HeadLanes(head, spec, max_lanes=max_lanes)
