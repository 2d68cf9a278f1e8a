"""State by slot: everything that is admitted, forked and released together with a sequence."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Items
from typing import Protocol

from gencli.core.request import Request
from gencli.engine.admission import admission
from gencli.engine.ahead import RunAhead
from gencli.engine.feeds import SampledSequences
from gencli.engine.reports import Taken
from gencli.engine.room import Room
from gencli.engine.sequence import Sequence
from gencli.models.model_runner import ModelRunner
from processors.base import Env
from processors.choose import Chooser
from processors.graphs import Graphs
from processors.history import History
from processors.pipeline import Pipeline
from processors.registry import Registry
from processors.rng import signed
from processors.rows import Rows
from processors.sampler import Sampler
from processors.verifier import Verifier

__all__ = ["Lanes", "ProcessorState", "SlotOwner", "SlotOwners"]


class SlotOwner(Protocol):
    """Owner of some state by slot. The engine calls all owners when a sequence gets or leaves its slot."""

    def admit(self, sequence: Sequence) -> None:
        """Set up the state for a sequence that has its slot. Raises ProcessorsError if it cannot run."""

    def release(self, slot: int) -> None:
        """Drop the state of a slot; no error if there is none."""

    def trim(self) -> None:
        """Free memory after out-of-memory. No slot is in use."""


class Lanes:
    """The KV lanes of the model, one per slot. `release` keeps a lane's tokens: they are the prefix cache.

    `ahead`: the runner if it runs ahead, else None.
    """

    def __init__(self, runner: ModelRunner, ahead: RunAhead | None = None) -> None:
        self._runner, self._ahead = runner, ahead

    def admit(self, sequence: Sequence) -> None:
        if sequence.num_computed_tokens:
            self._runner.truncate(sequence.slot, sequence.num_computed_tokens)
        else:
            self._runner.release(sequence.slot)  # the lane holds another sequence's tokens
        for slot in sequence.group.slots[1:] if sequence.group else ():
            self._runner.release(slot)

    def release(self, slot: int) -> None:
        if self._ahead:
            self._ahead.forget(slot)

    def trim(self) -> None:
        self._runner.free_cache()


class ProcessorState:
    """Tokens, logits processors, draw and verification of each slot, for the engine's `num_slots` slots.

    `graphs` captures the choice of a step's tokens on a GPU.
    """

    def __init__(self, env: Env, registry: Registry, *, num_slots: int, graphs: Graphs | None = None) -> None:
        self.history = History(env.device, slots=num_slots + 1)
        self.pipeline = Pipeline(env, registry)
        self.sampler = Sampler()
        self._graphs = graphs
        self.chooser = Chooser(self.pipeline, self.sampler, graphs)
        self.verifier = Verifier(self.sampler)
        self._spare_slot = num_slots  # for checking requests on submission

    def check(self, request: Request, context: int) -> None:
        """Raise ProcessorsError if a stage rejects the request. `context`: as in Sequence."""
        self.pipeline.admit(self._spare_slot, request.chain, admission(request, context))
        self.pipeline.release(self._spare_slot)

    def admit(self, sequence: Sequence) -> None:
        request, slot = sequence.request, sequence.slot
        self.history.admit(slot, request.prompt_ids, seed=signed(sequence.seed))
        self.pipeline.admit(slot, request.chain, admission(request, sequence.context))
        self.sampler.admit(slot, request.draw)
        self.verifier.admit(slot, request.verification)

    def fork(self, source: int, target: int) -> None:
        """Make slot `target` an independent copy of slot `source`, with the same seed."""
        self.history.fork(source, target, seed=self.history.seed(source))
        self.pipeline.fork(source, target)
        self.sampler.fork(source, target)
        self.verifier.fork(source, target)

    def release(self, slot: int) -> None:
        self.pipeline.release(slot)
        self.history.release(slot)

    def trim(self) -> None:
        if self._graphs is not None:
            self._graphs.clear()

    def rows(self, sampled: SampledSequences) -> Rows:
        """Build the rows of a step, prepared by the stages before the forward pass."""
        slots, drafts = [sequence.slot for sequence, _ in sampled], [run for _, run in sampled]
        return self.pipeline.prepare(Rows.build(self.history, slots, drafts))

    def commit(self, kept: Items[tuple[Sequence, Taken]]) -> None:
        """Append the tokens of continuing sequences to history and stages."""
        slots = [sequence.slot for sequence, _ in kept]
        self.history.append(slots, [taken.ids for _, taken in kept], [taken.forced for _, taken in kept])
        if self.pipeline.commits:
            for slot, (_, taken) in zip(slots, kept, strict=True):
                self.pipeline.commit(slot, taken.ids)


class SlotOwners:
    """Calls all owners of state by slot, in order. `room` records out-of-memory while forking."""

    def __init__(
        self, runner: ModelRunner, state: ProcessorState, owners: Items[SlotOwner], *, room: Room
    ) -> None:
        self._runner, self._state, self._owners, self._room = runner, state, owners, room

    def admit(self, sequence: Sequence) -> None:
        """Set up a sequence that has its slot in all owners. Raises ProcessorsError if it cannot run."""
        for owner in self._owners:
            owner.admit(sequence)

    def fork(self, source: int, target: int) -> None:
        """Copy the lane and the state of a slot to another slot."""
        with self._room:
            self._runner.fork(source, target)
            self._state.fork(source, target)

    def release(self, lanes: Iterable[int], slots: Iterable[int]) -> None:
        """Empty KV lanes, and drop all other state of slots."""
        for lane in lanes:
            self._runner.release(lane)
        for slot in slots:
            for owner in self._owners:
                owner.release(slot)

    def trim(self) -> None:
        """Free memory after out-of-memory. No slot is in use."""
        for owner in reversed(self._owners):
            owner.trim()
