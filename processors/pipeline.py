"""`Pipeline`: runs each row's chain over the logits of a step. Stages are applied in `_run` only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from processors.base import Admission, Env, GrammarStatus, Noise, Processor
from processors.chain import Chain, Stage
from processors.conditions.picks import Key, Picks, check_conditions
from processors.conditions.states import Conditions
from processors.errors import ProcessorsError, RowError
from processors.failures import explain_failure
from processors.foreign import ForeignStage
from processors.params import Params
from processors.registry import Registry, builtin_registry
from processors.rows import Rows
from processors.upload import upload

__all__ = ["Pipeline", "Seen", "StageCall"]


Seen = Callable[[str, Tensor], None]  # called with the name of a stage and the logits [R, V] after it


@dataclass(frozen=True, slots=True)
class StageCall:
    """One stage and the indices of the rows where it is active; None means all rows.

    `looks_first`: search the rows for NaN and +inf before the stage runs, because it might mask them. `turn`:
    number of the stage's instance; a chain with several entries of a stage has one instance for each.
    """

    stage: str
    places: tuple[int, ...] | None
    looks_first: bool = False
    turn: int = 0

    @property
    def key(self) -> Key:
        """The stage and its turn."""
        return self.stage, self.turn


@dataclass(frozen=True, slots=True)
class _Program:
    """The stage calls of a step, and the subset whose stages override `prepare`."""

    calls: tuple[StageCall, ...]
    preparing: tuple[StageCall, ...]


class Pipeline:
    """The stages of all requests. Each stage is built once and runs only on the rows where it is on.

    A stage with several entries in a chain, by conditions, is built once for each entry, so that each
    instance has one set of values a slot. The entries that act in a row are known on the host before the
    forward pass. A plug-in stage runs behind a guard (see processors.foreign). `notices` collects messages to
    users.
    """

    def __init__(self, env: Env, registry: Registry | None = None) -> None:
        self.env = env
        self.registry = registry or builtin_registry()
        self._stages: dict[Key, Processor[Any]] = {}
        self._picks: dict[int, Picks] = {}  # by slot
        self._conditions = Conditions(env.vocabulary)
        self._committing: dict[int, tuple[Processor[Any], ...]] = {}  # by slot, if any overrides `commit`
        self._previewing: dict[int, tuple[Processor[Any], ...]] = {}
        self.withholding: dict[int, Processor[Any]] = {}  # stages that hold tokens back, by slot
        self._programs: dict[tuple[Any, ...], _Program] = {}
        self._forced_sequential: set[str] = set()
        self.notices: list[str] = []

    def admit(self, slot: int, chain: Chain, request: Admission) -> None:
        """Admit a request to the active stages of its chain. If one raises, none keeps the slot."""
        check_conditions(chain, self.registry)
        picks = Picks(chain, self.registry)
        if picks.whens:
            self._conditions.admit(slot, picks.whens, request.prompt)
        for index, key in enumerate(picks.keys):
            try:
                self.stage(*key).admit(slot, picks.stages[key][1], request)
            except ProcessorsError:
                for admitted in picks.keys[:index]:
                    self.stage(*admitted).release(slot)
                self._conditions.release(slot)
                raise
        if not picks.whens:
            self._conditions.release(slot)
        self._set_picks(slot, picks)

    def fork(self, source: int, target: int) -> None:
        """Make the target slot an independent copy of the source."""
        picks = self._picks[source]
        for key in picks.keys:
            self.stage(*key).fork(source, target)
        if picks.whens:
            self._conditions.fork(source, target)
        self._set_picks(target, picks)

    def _set_picks(self, slot: int, picks: Picks) -> None:
        stages = [self.stage(*key) for key in picks.keys]
        self._picks[slot] = picks
        for hooks, name in ((self._committing, "commit"), (self._previewing, "preview")):
            hooks.pop(slot, None)
            if found := tuple([s for s in stages if getattr(type(s), name) is not getattr(Processor, name)]):
                hooks[slot] = found
        self.withholding.pop(slot, None)
        for stage in stages:
            if stage.withholds(slot):
                self.withholding[slot] = stage
        self._programs.clear()

    def release(self, slot: int) -> None:
        """Release the slot in its stages; its request has ended."""
        if slot in self._picks:
            for key in self._picks.pop(slot).keys:
                self.stage(*key).release(slot)
        self._conditions.release(slot)
        for hooks in (self._committing, self._previewing, self.withholding):
            hooks.pop(slot, None)
        self._programs.clear()

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Advance the slot by tokens that were appended to the output."""
        for stage in self._committing.get(slot, ()):
            stage.commit(slot, tokens)
        if slot in self._conditions.slots:
            self._conditions.commit(slot, tokens)

    @property
    def commits(self) -> bool:
        """Whether any stage or condition has to be told the committed tokens."""
        return bool(self._committing) or bool(self._conditions.slots)

    @property
    def previews(self) -> bool:
        """Whether any slot has a grammar status to preview."""
        return bool(self._previewing)

    def prepare(self, rows: Rows) -> Rows:
        """Run `prepare` of the stages before the forward pass. Return the rows with forced drafts marked."""
        for call in self._planned(rows).preparing:
            active = rows if call.places is None else rows.select(call.places)
            forced = self.stage(*call.key).prepare(active)
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
        return next(filter(None, (one.predicted(slot, noise) for one in self._of_slot(slot))), ())

    def completion(self, slot: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return the first non-empty `Processor.completion` among the slot's stages; () if there is none."""
        return next(filter(None, (one.completion(slot, tokens) for one in self._of_slot(slot))), ())

    def sequential(self, slot: int) -> str:
        """Return the name of a sequential stage in the slot's chain; "" if there is none.

        A slot with a sequential stage runs without draft tokens.
        """
        return next((name for name, _ in self._picks[slot].keys if self.runs_stepwise(name)), "")

    def runs_stepwise(self, name: str) -> bool:
        """Whether the stage is sequential, so that its slots run without draft tokens."""
        return name in self._forced_sequential or self.stage(name).sequential

    def _of_slot(self, slot: int) -> Iterator[Processor[Any]]:
        return (self.stage(*key) for key in self._picks[slot].keys)

    def values(self, slot: int, call: StageCall) -> Params:
        """Return the parameters of a stage call in a slot."""
        return self._picks[slot].stages[call.key][1]

    def left_out(self, slot: int, drafts: tuple[int, ...]) -> tuple[tuple[int, Stage, str], ...]:
        """Return the stages of a slot that conditions switch off after these drafts: see Picks.left_out."""
        if slot not in self._conditions.slots:
            return ()
        return self._picks[slot].left_out(self._conditions.hold(slot, drafts))

    def run_stepwise(self, name: str) -> None:
        """Treat this stage as sequential from now on, whatever its class declares."""
        self._forced_sequential.add(name)

    def stage(self, name: str, turn: int = 0) -> Processor[Any]:
        """Return the instance of a stage with this turn, built on first use."""
        if (name, turn) not in self._stages:
            found = self.registry.load(name)
            is_ours = self.registry.is_builtin(name)
            built = found(self.env) if is_ours else ForeignStage(found, self.env, self.notices)
            built.notices = self.notices
            self._stages[name, turn] = built
        return self._stages[name, turn]

    def __call__(self, logits: Tensor, rows: Rows, seen: Seen | None = None) -> Tensor:
        """Return processed logits [R, V] float32. The input is not changed; it is returned if no stage is on.

        A row with NaN or +inf in the input has one of them in the result, even if a stage masked that id.
        `seen(stage, logits)` is called after each stage.
        """
        return self.run(self.program(rows), logits, rows, seen)

    def run(self, calls: Sequence[StageCall], logits: Tensor, rows: Rows, seen: Seen | None = None) -> Tensor:
        """Run only these calls of the rows' program; otherwise as `__call__`."""
        work, tops = logits.to(torch.float32, copy=bool(calls)), list[Tensor]()
        for call in calls:
            if call.looks_first:
                tops.append(
                    work.amax(dim=-1).clamp_(min=0)
                )  # amax propagates NaN; a fully masked row is not a fault
            work = self._run(call, work, rows)
            if seen is not None:
                seen(call.stage, work)
        for top in tops:
            work[:, 0].sub_(top - top)  # subtracts 0, or NaN if the largest logit is not finite
        return work

    def _run(self, call: StageCall, logits: Tensor, rows: Rows) -> Tensor:
        """Apply the stage to its active rows and write them back. Tracing replaces this method."""
        if call.places is None:
            return self.stage(*call.key).apply(logits, rows)
        at = upload(call.places, logits.device)
        active = self.stage(*call.key).apply(logits.index_select(0, at), rows.select(call.places))
        return logits.index_copy_(0, at, active)

    @property
    def is_traced(self) -> bool:
        """Whether the effect of each stage is recorded, which forbids fusing stages."""
        return "_run" in vars(self)

    def program(self, rows: Rows) -> tuple[StageCall, ...]:
        """Return the calls of a step. The object stays the same until a slot or a condition changes."""
        return self._planned(rows).calls

    def _planned(self, rows: Rows) -> _Program:
        key = self._state_of(rows) if self._conditions.slots else rows.host_slots
        found = self._programs.get(key)
        if found is None:
            if len(self._programs) > 64:
                self._programs.clear()
            calls = self._plan(rows)
            found = _Program(calls, tuple(call for call in calls if self.stage(*call.key).prepares))
            self._programs[key] = found
        return found

    def _state_of(self, rows: Rows) -> tuple[Any, ...]:
        """Return the slots of the rows, and for each slot with conditions which of them hold."""
        return rows.host_slots, tuple(
            [
                self._conditions.hold(slot, drafts) if slot in self._conditions.slots else ()
                for slot, drafts in zip(rows.host_slots, rows.host_drafts, strict=True)
            ]
        )

    def _plan(self, rows: Rows) -> tuple[StageCall, ...]:
        """Plan the calls. Chains in default order share calls; each other order gets calls of its own."""
        default = self.registry.names()
        groups: dict[tuple[str, ...], list[int]] = {}
        turns = list[dict[str, int]]()  # by row: the turn of each stage that acts in the row
        for index, (slot, drafts) in enumerate(zip(rows.host_slots, rows.host_drafts, strict=True)):
            picks = self._picks[slot]
            ranks = [default.index(name) for name in picks.order]
            groups.setdefault(default if ranks == sorted(ranks) else picks.order, []).append(index)
            hold = self._conditions.hold(slot, drafts) if picks.whens else ()
            turns.append(dict(picks.where(hold)))
        calls, may_have_faults = [], True
        for order, places in groups.items():
            for name in order:
                active: dict[int, list[int]] = {}
                for index in places:
                    if name in turns[index]:
                        active.setdefault(turns[index][name], []).append(index)
                for turn, found in sorted(active.items()):
                    looks = may_have_faults and not self.stage(name, turn).keeps_faults
                    calls.append(
                        StageCall(name, None if len(found) == len(rows) else tuple(found), looks, turn)
                    )
                    may_have_faults = (may_have_faults and not looks) or not self.registry.is_builtin(name)
        return tuple(calls)

    def explain_failure(self, logits: Tensor, rows: Rows, index: int) -> RowError:
        """Return why the row `index` failed: run it again alone and check the logits after each stage."""
        row = rows.select([index])
        keys = self._picks[row.host_slots[0]].keys
        return explain_failure(self.stage, self._plan(row), keys, logits[index : index + 1], row)
