"""`Pipeline`: runs each row's chain over the logits of a step. Stages are applied in `_run` only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

__all__ = ["Pipeline", "Seen", "StageCall"]


Seen = Callable[[str, Tensor], None]  # gets the name of a stage and the logits [R, V] after it

_EMPTY = "No token is left to choose from"


@dataclass(frozen=True, slots=True)
class StageCall:
    """One stage and the indices of the rows where it is active; None means all rows.

    `looks_first`: search the rows for NaN and +inf before the stage runs, because it might mask them.
    """

    stage: str
    places: tuple[int, ...] | None
    looks_first: bool = False


@dataclass(frozen=True, slots=True)
class _Program:
    """The calls of a step, and those of them whose stage prepares."""

    calls: tuple[StageCall, ...]
    preparing: tuple[StageCall, ...]


class Pipeline:
    """The stages of all requests. Each stage is built once and runs only on the rows where it is on.

    A plug-in stage runs behind a guard (see processors.foreign). `notices` collects messages to users.
    """

    def __init__(self, env: Env, registry: Registry | None = None) -> None:
        self.env = env
        self.registry = registry or builtin_registry()
        self._stages: dict[str, Processor[Any]] = {}
        self._orders: dict[int, tuple[str, ...]] = {}
        self._committing: dict[int, tuple[Processor[Any], ...]] = {}  # by slot, if any overrides `commit`
        self._previewing: dict[int, tuple[Processor[Any], ...]] = {}
        self._withholding: dict[int, Processor[Any]] = {}
        self._programs: dict[tuple[int, ...], _Program] = {}
        self._forced_sequential: set[str] = set()
        self.notices: list[str] = []

    def admit(self, slot: int, chain: Chain, request: Admission) -> None:
        """Admit a request to the active stages of its chain. If one raises, none keeps the slot."""
        stages = chain.active().stages
        names = tuple(name for name, _ in stages)
        for name in names:
            if names.count(name) > 1:
                raise twice(name, "chain", self.registry)
        for index, (name, params) in enumerate(stages):
            try:
                self.stage(name).admit(slot, params, request)
            except ProcessorsError:
                for admitted in names[:index]:
                    self.stage(admitted).release(slot)
                raise
        self._set_order(slot, names)

    def fork(self, source: int, target: int) -> None:
        """Make the target slot an independent copy of the source."""
        for name in self._orders[source]:
            self.stage(name).fork(source, target)
        self._set_order(target, self._orders[source])

    def _set_order(self, slot: int, names: tuple[str, ...]) -> None:
        stages = [self.stage(name) for name in names]
        self._orders[slot] = names
        for hooks, name in ((self._committing, "commit"), (self._previewing, "preview")):
            hooks.pop(slot, None)
            if found := tuple([s for s in stages if getattr(type(s), name) is not getattr(Processor, name)]):
                hooks[slot] = found
        self._withholding.pop(slot, None)
        for stage in stages:
            if stage.withholds(slot):
                self._withholding[slot] = stage
        self._programs.clear()

    def release(self, slot: int) -> None:
        """Release the slot in its stages; its request has ended."""
        for name in self._orders.pop(slot, ()):
            self.stage(name).release(slot)
        for hooks in (self._committing, self._previewing, self._withholding):
            hooks.pop(slot, None)
        self._programs.clear()

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Advance the slot by tokens that are now part of the output."""
        for stage in self._committing.get(slot, ()):
            stage.commit(slot, tokens)

    @property
    def commits(self) -> bool:
        """Whether any stage follows the tokens of its slots."""
        return bool(self._committing)

    @property
    def previews(self) -> bool:
        """Whether any slot has a grammar status to preview."""
        return bool(self._previewing)

    @property
    def withholding(self) -> dict[int, Processor[Any]]:
        """The stage of each slot that decides which of its tokens are committed; see Processor.settle."""
        return self._withholding

    def prepare(self, rows: Rows) -> Rows:
        """Run `prepare` of the stages before the model runs. Return the rows, forced drafts marked."""
        for call in self._planned(rows).preparing:
            active = rows if call.places is None else rows.select(call.places)
            forced = self.stage(call.stage).prepare(active)
            if forced is not None:
                rows = rows.with_forced(call.places, forced)
        return rows

    def preview(self, slot: int, tokens: Sequence[int]) -> tuple[GrammarStatus, ...]:
        """Return the grammar status after each of these tokens; () for a slot without a grammar."""
        for stage in self._previewing.get(slot, ()):
            if found := stage.preview(slot, tokens):
                return found
        return ()

    def predicted(self, slot: int, noise: Noise | None = None) -> tuple[tuple[int, float], ...]:
        """Return the first non-empty `Processor.predicted` among the slot's stages; () if there is none."""
        return next(
            filter(None, (self.stage(name).predicted(slot, noise) for name in self._orders[slot])), ()
        )

    def completion(self, slot: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return the first non-empty `Processor.completion` among the slot's stages; () if there is none."""
        return next(
            filter(None, (self.stage(name).completion(slot, tokens) for name in self._orders[slot])), ()
        )

    def sequential(self, slot: int) -> str:
        """Return the name of a sequential stage in the slot's chain; "" if there is none.

        A slot with a sequential stage runs without draft tokens.
        """
        return next(filter(self.runs_stepwise, self._orders[slot]), "")

    def runs_stepwise(self, name: str) -> bool:
        """Whether the stage is sequential, so that its slots run without draft tokens."""
        return name in self._forced_sequential or self.stage(name).sequential

    def run_stepwise(self, name: str) -> None:
        """Treat this stage as sequential from now on, whatever its class declares."""
        self._forced_sequential.add(name)

    def stage(self, name: str) -> Processor[Any]:
        """Return the only instance of a stage, built on first use."""
        if name not in self._stages:
            found = self.registry.load(name)
            is_ours = self.registry.is_builtin(name)
            built = found(self.env) if is_ours else ForeignStage(found, self.env, self.notices)
            built.notices = self.notices
            self._stages[name] = built
        return self._stages[name]

    def __call__(self, logits: Tensor, rows: Rows, seen: Seen | None = None) -> Tensor:
        """Return processed logits [R, V] float32. The input is not changed; it is returned if no stage is on.

        A row with NaN or +inf in the input has one of them in the result, even if a stage masked that id.
        `seen(stage, logits)` is called after each stage.
        """
        return self.run(self.program(rows), logits, rows, seen)

    def run(self, calls: Sequence[StageCall], logits: Tensor, rows: Rows, seen: Seen | None = None) -> Tensor:
        """As `__call__`, but run only these calls of the rows' program."""
        work, tops = logits.to(torch.float32, copy=bool(calls)), list[Tensor]()
        for call in calls:
            if call.looks_first:
                tops.append(
                    work.amax(dim=-1).clamp_(min=0)
                )  # amax propagates NaN; a fully masked row is no fault
            work = self._run(call, work, rows)
            if seen is not None:
                seen(call.stage, work)
        for top in tops:
            work[:, 0].sub_(top - top)  # subtracts 0, or NaN where the largest logit is not finite
        return work

    def _run(self, call: StageCall, logits: Tensor, rows: Rows) -> Tensor:
        """Select the active rows, apply the stage, write them back. Tracing replaces this method."""
        if call.places is None:
            return self.stage(call.stage).apply(logits, rows)
        at = upload(call.places, logits.device)
        active = self.stage(call.stage).apply(logits.index_select(0, at), rows.select(call.places))
        return logits.index_copy_(0, at, active)

    @property
    def is_traced(self) -> bool:
        """Whether the effect of each stage is recorded, so that each has to run."""
        return "_run" in vars(self)

    def program(self, rows: Rows) -> tuple[StageCall, ...]:
        """Return the calls of a step, cached by its slots: the same object until a slot changes."""
        return self._planned(rows).calls

    def _planned(self, rows: Rows) -> _Program:
        found = self._programs.get(rows.host_slots)
        if found is None:
            if len(self._programs) > 64:
                self._programs.clear()
            calls = self._plan(rows.host_slots)
            found = _Program(calls, tuple(call for call in calls if self.stage(call.stage).prepares))
            self._programs[rows.host_slots] = found
        return found

    def _plan(self, slots: tuple[int, ...]) -> tuple[StageCall, ...]:
        """Plan the calls: chains in default order share them, each other order has its own."""
        default = self.registry.names()
        groups: dict[tuple[str, ...], list[int]] = {}
        for index, slot in enumerate(slots):
            order = self._orders[slot]
            ranks = [default.index(name) for name in order]
            groups.setdefault(default if ranks == sorted(ranks) else order, []).append(index)
        calls, may_have_faults = [], True
        for order, places in groups.items():
            for name in order:
                active = tuple(index for index in places if name in self._orders[slots[index]])
                if active:
                    looks = may_have_faults and not self.stage(name).keeps_faults
                    calls.append(StageCall(name, None if len(active) == len(slots) else active, looks))
                    may_have_faults = (may_have_faults and not looks) or not self.registry.is_builtin(name)
        return tuple(calls)

    def explain_failure(self, logits: Tensor, rows: Rows, index: int) -> RowError:
        """Return why the row `index` failed: run it again alone and check the logits after each stage."""
        row = rows.select([index])
        where = {"slot": row.host_slots[0], "position": int(row.positions[0])}
        work = logits[index : index + 1].to(torch.float32, copy=True)
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
        """Return the logits after one stage, and the error if the row fails there."""
        stage = self.stage(name)
        after = stage.apply(logits, row)
        error = _fault(after, stage=name, **where)
        if isinstance(error, NonFiniteLogits):
            error = self._failure(name, where) or error
        elif error and (reason := stage.failure_reason(row.host_slots[0], row.host_drafts[0])):
            error = EmptySupport(f"{_EMPTY}: {reason}.", stage=name, **where)
        return after, error

    def _failure(self, name: str, where: Mapping[str, int]) -> StageFailure | None:
        """Return the failure of a plug-in stage in the slot; None if there is none."""
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
