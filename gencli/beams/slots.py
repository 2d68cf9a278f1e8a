"""The slots of beams: KV lane, history and pipeline, which are forked and dropped together."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.beams.places import arrange
from gencli.beams.search import Child
from gencli.core.request import Request
from gencli.engine.admission import admission
from gencli.models.base import ModelRunner
from processors.history import History
from processors.pipeline import Pipeline

__all__ = ["BeamSlots"]


class BeamSlots:
    """Owns which slots are free, and keeps what they hold in step."""

    def __init__(self, runner: ModelRunner, pipeline: Pipeline, count: int) -> None:
        self.history = History(pipeline.env.device, slots=count)
        self._runner, self._pipeline = runner, pipeline
        self._free = list(range(count))

    @property
    def num_free(self) -> int:
        """How many slots no search has."""
        return len(self._free)

    def take(self, request: Request, count: int) -> tuple[int, ...]:
        """Slots for a search, the first of them for the beam that reads the prompt.

        Raises ProcessorsError if a stage refuses the request; no slot is taken then.
        """
        slots = tuple(self._free[:count])
        self._pipeline.admit(slots[0], request.chain, admission(request, self._runner.spec.context))
        self.history.admit(slots[0], request.prompt_ids)
        self._free = self._free[count:]
        return slots

    def give_back(self, slots: Sequence[int]) -> None:
        """Empty the slots of a search that is over."""
        for slot in slots:
            self._empty(slot)
        self._free = sorted([*self._free, *slots])

    def place(self, children: Sequence[Child], slots: Sequence[int]) -> None:
        """Fork and drop a search's beams, so that each child has a slot; then commit the new tokens."""
        parents = [child.parent for child in children]
        for slot in set(slots) - set(parents):
            self._empty(slot)
        placed = arrange(parents, slots)
        for child, slot in zip(children, placed, strict=True):
            child.beam.slot = slot
            if slot != child.parent:
                self._fork(child.parent, slot)
        taken = [child.taken for child in children]
        self.history.append(placed, [one.ids for one in taken], [one.forced for one in taken])
        for slot, one in zip(placed, taken, strict=True):
            self._pipeline.commit(slot, one.ids)

    def _fork(self, source: int, target: int) -> None:
        self._runner.fork(source, target)
        self._pipeline.fork(source, target)
        self.history.fork(source, target, seed=0)  # nothing is drawn

    def _empty(self, slot: int) -> None:
        self._runner.release(slot)
        self._pipeline.release(slot)
        self.history.release(slot)
