"""Runs each row's chain over the logits of a step. Every stage is called through one private seam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from processors.base import Admission, Env, GrammarStatus, Noise, Processor
from processors.chain import Chain
from processors.errors import EmptySupport, NonFiniteLogits, ProcessorsError, RowError, StageFailure
from processors.foreign import ForeignStage
from processors.registry import Registry, builtin_registry, twice
from processors.rows import Rows
from processors.upload import upload

__all__ = ["Pipeline", "StageCall"]


_EMPTY = "No token is left to choose from"


@dataclass(frozen=True, slots=True)
class StageCall:
    """One stage and the places in the step's rows where it is active; None is all of them.

    `looks_first`: it might mask a NaN or +inf that came from the model or from a plug-in, so the rows that
    have one are found before it runs.
    """

    stage: str
    places: tuple[int, ...] | None
    looks_first: bool = False


class Pipeline:
    """The stages of all requests. A stage is built once, and runs only on the rows where it is on.

    A stage that does not ship with the library runs behind a guard (see processors.foreign). `notices` has
    what stages and guard have to say, and grows.
    """

    def __init__(self, env: Env, registry: Registry | None = None) -> None:
        self.env = env
        self.registry = registry or builtin_registry()
        self._stages: dict[str, Processor[Any]] = {}
        self._orders: dict[int, tuple[str, ...]] = {}
        self._programs: dict[tuple[int, ...], tuple[StageCall, ...]] = {}
        self._stepwise: set[str] = set()
        self.notices: list[str] = []

    def admit(self, slot: int, chain: Chain, request: Admission) -> None:
        """A request takes the slot; only stages that are on hear of it. If one refuses it, none has it."""
        stages = chain.active().stages
        names = tuple(name for name, _ in stages)
        for name in names:
            if names.count(name) > 1:
                raise twice(name, "chain", self.registry)
        for place, (name, params) in enumerate(stages):
            try:
                self.stage(name).admit(slot, params, request)
            except ProcessorsError:
                for admitted in names[:place]:
                    self.stage(admitted).release(slot)
                raise
        self._orders[slot] = names
        self._programs.clear()

    def fork(self, source: int, target: int) -> None:
        """The target slot becomes an independent copy of the source."""
        for name in self._orders[source]:
            self.stage(name).fork(source, target)
        self._orders[target] = self._orders[source]
        self._programs.clear()

    def release(self, slot: int) -> None:
        """The request has left the slot."""
        for name in self._orders.pop(slot, ()):
            self.stage(name).release(slot)
        self._programs.clear()

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """These tokens of the slot's request are final."""
        for name in self._orders[slot]:
            self.stage(name).commit(slot, tokens)

    def prepare(self, rows: Rows) -> Rows:
        """Let the stages do what needs no logits, before the model runs; the rows, with what they found."""
        for call in self._program(rows):
            stage = self.stage(call.stage)
            if not stage.prepares:
                continue
            active = rows if call.places is None else rows.select(call.places)
            forced = stage.prepare(active)
            if forced is not None:
                rows = rows.with_forced(call.places, forced)
        return rows

    def preview(self, slot: int, tokens: Sequence[int]) -> tuple[GrammarStatus, ...]:
        """Where the slot's grammar would stand after each of these tokens; () if it has none."""
        found = (self.stage(name).preview(slot, tokens) for name in self._orders[slot])
        return next(filter(None, found), ())

    def likely(self, slot: int, noise: Noise | None = None) -> tuple[tuple[int, float], ...]:
        """Tokens that have to come next in the slot, or are likely to, and how likely; see Processor."""
        return next(filter(None, (self.stage(name).likely(slot, noise) for name in self._orders[slot])), ())

    def closing(self, slot: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """Tokens that complete the slot's open document behind these; () if there is none."""
        return next(filter(None, (self.stage(name).closing(slot, tokens) for name in self._orders[slot])), ())

    def sequential(self, slot: int) -> str:
        """The stage of the slot's chain that needs every outcome before the next position; "" if none does.

        Such a slot has no drafts.
        """
        found = (n for n in self._orders[slot] if n in self._stepwise or self.stage(n).sequential)
        return next(found, "")

    def run_stepwise(self, name: str) -> None:
        """From now on a chain with this stage is sequential, whatever the stage says of itself."""
        self._stepwise.add(name)

    def stage(self, name: str) -> Processor[Any]:
        """The one instance of a stage, built on first use."""
        if name not in self._stages:
            found = self.registry.load(name)
            is_ours = self.registry.is_builtin(name)
            built = found(self.env) if is_ours else ForeignStage(found, self.env, self.notices)
            built.notices = self.notices
            self._stages[name] = built
        return self._stages[name]

    def __call__(self, logits: Tensor, rows: Rows) -> Tensor:
        """Processed logits [R, V] float32. The input is not changed; it comes back if nothing is on.

        A row with NaN or +inf has it in the result as well, though a stage may have masked that id.
        """
        program = self._program(rows)
        work, tops = logits.to(torch.float32, copy=bool(program)), list[Tensor]()
        for call in program:
            if call.looks_first:
                tops.append(work.amax(dim=-1).clamp_(min=0))  # which hands NaN on; an empty row is no fault
            work = self._run(call, work, rows)
        for top in tops:
            work[:, 0].sub_(top - top)  # 0, or NaN where the largest is not finite
        return work

    def _run(self, call: StageCall, logits: Tensor, rows: Rows) -> Tensor:
        """The seam: select the active rows, apply, put them back. Tracing replaces this method."""
        if call.places is None:
            return self.stage(call.stage).apply(logits, rows)
        at = upload(call.places, logits.device)
        active = self.stage(call.stage).apply(logits.index_select(0, at), rows.select(call.places))
        return logits.index_copy_(0, at, active)

    def _program(self, rows: Rows) -> tuple[StageCall, ...]:
        """The calls of a step. It depends on which slots have rows, so it is kept while they stay."""
        if rows.host_slots not in self._programs:
            if len(self._programs) > 64:
                self._programs.clear()
            self._programs[rows.host_slots] = self._plan(rows.host_slots)
        return self._programs[rows.host_slots]

    def _plan(self, slots: tuple[int, ...]) -> tuple[StageCall, ...]:
        """Chains that follow the default order share their calls; any other order is a group of its own."""
        default = self.registry.names()
        groups: dict[tuple[str, ...], list[int]] = {}
        for place, slot in enumerate(slots):
            order = self._orders[slot]
            ranks = [default.index(name) for name in order]
            groups.setdefault(default if ranks == sorted(ranks) else order, []).append(place)
        calls, may_have_faults = [], True
        for order, places in groups.items():
            for name in order:
                active = tuple(place for place in places if name in self._orders[slots[place]])
                if active:
                    looks = may_have_faults and not self.stage(name).keeps_faults
                    calls.append(StageCall(name, None if len(active) == len(slots) else active, looks))
                    may_have_faults = (may_have_faults and not looks) or not self.registry.is_builtin(name)
        return tuple(calls)

    def explain_failure(self, logits: Tensor, rows: Rows, place: int) -> RowError:
        """Why the row at `place` cannot be decided: run it again alone, looking after each stage."""
        row = rows.select([place])
        where = {"slot": row.host_slots[0], "position": int(row.positions[0])}
        work = logits[place : place + 1].to(torch.float32, copy=True)
        error = _fault(work, stage="model", **where)
        for call in self._plan(row.host_slots):
            if error is not None:
                break
            work, error = self._explained(call.stage, work, row, where)
        failures = filter(None, (self._failure(name, where) for name in self._orders[row.host_slots[0]]))
        unknown = StageFailure("it failed among others and not alone", stage="?", **where)
        return error or next(failures, unknown)

    def _explained(
        self, name: str, logits: Tensor, row: Rows, where: Mapping[str, int]
    ) -> tuple[Tensor, RowError | None]:
        """The logits after one stage, and why the row ends there, if it does."""
        stage = self.stage(name)
        after = stage.apply(logits, row)
        error = _fault(after, stage=name, **where)
        if isinstance(error, NonFiniteLogits):
            error = self._failure(name, where) or error
        elif error and (reason := stage.failure_reason(row.host_slots[0], row.host_drafts[0])):
            error = EmptySupport(f"{_EMPTY}: {reason}.", stage=name, **where)
        return after, error

    def _failure(self, name: str, where: Mapping[str, int]) -> StageFailure | None:
        """What a plug-in's stage did wrong for the slot, if anything."""
        stage = self.stage(name)
        fault = stage.fault(where["slot"]) if isinstance(stage, ForeignStage) else None
        if fault is None:
            return None
        error = StageFailure(fault.text, stage=name, **where)
        error.__cause__ = fault.cause
        return error


def _fault(logits: Tensor, *, stage: str, slot: int, position: int) -> RowError | None:
    top = float(logits.amax())
    if top == -torch.inf:
        return EmptySupport(
            f"{_EMPTY}: loosen this stage or one before it.",
            stage=stage,
            slot=slot,
            position=position,
        )
    if not top < torch.inf:
        return NonFiniteLogits(
            "NaN or +inf among the logits: the stage, or the model's number format, is at fault.",
            stage=stage,
            slot=slot,
            position=position,
        )
    return None
