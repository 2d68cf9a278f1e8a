"""Parts of an engine, and the function that makes and connects them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gencli.engine.ahead import RunAhead
from gencli.engine.beams.searches import BeamSearches
from gencli.engine.branches import Branches
from gencli.engine.companions import Companions
from gencli.engine.contrastive.searches import ContrastiveSearches
from gencli.engine.endings import Endings
from gencli.engine.outputs import Outputs
from gencli.engine.room import Room
from gencli.engine.scheduler import Scheduler
from gencli.engine.slot_state import Lanes, ProcessorState, SlotOwners
from gencli.engine.speculation import Clock, Speculation
from gencli.engine.step_runner import StepRunner
from gencli.models.model_runner import ModelRunner
from gencli.speculative.combined_drafters import make_engine_drafter
from gencli.speculative.drafter import Drafter
from processors.base import Env
from processors.registry import Registry

__all__ = ["EngineParts", "make_parts"]


@dataclass(frozen=True, slots=True, eq=False)
class EngineParts:
    """The parts that an Engine calls. `notices`: the one list to which all of them append."""

    state: ProcessorState
    speculation: Speculation
    companions: Companions
    owners: SlotOwners
    endings: Endings
    beams: BeamSearches
    contrastive: ContrastiveSearches
    steps: StepRunner
    outputs: Outputs
    room: Room
    notices: list[str]


def make_parts(
    runner: ModelRunner,
    ahead: RunAhead | None,
    scheduler: Scheduler,
    env: Env,
    registry: Registry,
    *,
    drafter: Drafter | None,
    amateurs: Mapping[str, ModelRunner] | None,
    clock: Clock | None,
) -> EngineParts:
    """Return the parts of an engine on `runner`, which is `ahead` if it runs ahead; the rest as in Engine.

    Companions use the lanes after the slots of the scheduler.
    """
    spec, num_slots, room = runner.spec, scheduler.limit, Room()
    graphs = spec.graphs.like() if spec.graphs else None  # separate memory, because both run in a step
    state = ProcessorState(env, registry, num_slots=num_slots, graphs=graphs)
    pipeline = state.pipeline
    engine_drafter = make_engine_drafter(drafter, pipeline, state.sampler, state.history)
    speculation = Speculation(engine_drafter, pipeline, registry, spec, clock=clock)
    companions = Companions(runner, amateurs, offset=num_slots, budget=scheduler.step_tokens)
    owners = SlotOwners(runner, state, (Lanes(runner, ahead), state, speculation, companions), room=room)
    branches = Branches(scheduler, pipeline, fork=owners.fork, release=owners.release)
    endings = Endings(scheduler, pipeline, owners.release)
    beams = BeamSearches(pipeline, branches)
    contrastive = ContrastiveSearches(pipeline, branches, endings.completion)
    searches = beams, contrastive
    steps = StepRunner(runner, ahead, scheduler, state, speculation, companions, *searches)
    outputs = Outputs(runner, scheduler, state, speculation, *searches, endings, room)
    notices = pipeline.notices  # the same list
    notices += engine_drafter.notices
    others = (one.spec.graphs for one in (amateurs or {}).values())
    for one in (spec.graphs, graphs, ahead, *others):
        if one is not None:
            one.notices = notices
    return EngineParts(
        state,
        speculation,
        companions,
        owners,
        endings,
        beams,
        contrastive,
        steps,
        outputs,
        room,
        notices,
    )
