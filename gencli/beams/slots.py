"""Slots of beams: KV lane, token history and pipeline state, forked and released together."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.beams.search import Child
from gencli.core.request import Request
from gencli.engine.admission import admission
from gencli.models.base import ModelRunner
from processors.history import History
from processors.pipeline import Pipeline

__all__ = ["BeamSlots", "assign_slots"]


def assign_slots(parents: Sequence[int], slots: Sequence[int]) -> list[int]:
    """Return a slot for each child. `parents` are the slots of their parents, `slots` all of the search.

    The first child of a parent keeps the parent's slot, so a beam with one child is not copied. Other
    children get slots of beams without children.
    """
    free = iter([slot for slot in slots if slot not in parents])
    used: set[int] = set()
    assigned = []
    for parent in parents:
        slot = next(free) if parent in used else parent
        used.add(slot)
        assigned.append(slot)
    return assigned


class BeamSlots:
    """The slots of all searches: the free ones, and the state of the others."""

    def __init__(self, runner: ModelRunner, pipeline: Pipeline, count: int) -> None:
        self.history = History(pipeline.env.device, slots=count)
        self._runner, self._pipeline = runner, pipeline
        self._free = list(range(count))

    @property
    def num_free(self) -> int:
        """The number of free slots."""
        return len(self._free)

    def take(self, request: Request, count: int) -> tuple[int, ...]:
        """Return slots for a search, the first of them admitted for the beam that reads the prompt.

        Raises ProcessorsError if a stage refuses the request; no slot is taken then.
        """
        slots = tuple(self._free[:count])
        self._pipeline.admit(slots[0], request.chain, admission(request, self._runner.spec.context))
        self.history.admit(slots[0], request.prompt_ids)
        self._free = self._free[count:]
        return slots

    def give_back(self, slots: Sequence[int]) -> None:
        """Free the slots of a finished search."""
        for slot in slots:
            self._empty(slot)
        self._free = sorted([*self._free, *slots])

    def assign(self, children: Sequence[Child], slots: Sequence[int]) -> None:
        """Fork and release beams, so that each child has a slot; then commit the new tokens."""
        parents = [child.parent for child in children]
        for slot in set(slots) - set(parents):
            self._empty(slot)
        assigned = assign_slots(parents, slots)
        for child, slot in zip(children, assigned, strict=True):
            child.beam.slot = slot
            if slot != child.parent:
                self._fork(child.parent, slot)
        taken = [child.taken for child in children]
        self.history.append(assigned, [one.ids for one in taken], [one.forced for one in taken])
        for slot, one in zip(assigned, taken, strict=True):
            self._pipeline.commit(slot, one.ids)

    def _fork(self, source: int, target: int) -> None:
        self._runner.fork(source, target)
        self._pipeline.fork(source, target)
        self.history.fork(source, target, seed=0)  # beams are not sampled

    def _empty(self, slot: int) -> None:
        self._runner.release(slot)
        self._pipeline.release(slot)
        self.history.release(slot)
