"""The generate loop: requests in, events out, one step at a time; the parts that it connects, and
`StepRunner`, which plans a step, runs the model and chooses the tokens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from gencli.core.events import Event, by_sample
from gencli.core.request import Request
from gencli.engine.ahead import RunAhead, Speculation, can_rewind, check_rewind, held_drafts, make_ahead
from gencli.engine.beam_search import BeamSearches, Branches, check_beams
from gencli.engine.companions import Companions
from gencli.engine.contrastive_search import ContrastiveSearches, check_contrastive
from gencli.engine.logprobs import Watch, scoring_of, slice_rows, split_scores
from gencli.engine.reports import BestOf, Room, expand_samples
from gencli.engine.scheduler import WINDOW, Samples, Scheduler
from gencli.engine.sequence import SampledSequences, Sequence
from gencli.engine.slot_state import Lanes, ProcessorState, SlotOwners, check_request, effective, text_stream
from gencli.engine.step_outputs import (
    Endings,
    Outputs,
    StepResult,
    Verified,
    accept_given,
    check_given,
    check_prefix,
    first_rows,
    given_drafts,
    given_tokens,
)
from gencli.errors import DeviceError, GenerationError, device_faults
from gencli.models.model_runner import ModelRunner
from gencli.speculative.adaptive_drafts import Clock
from gencli.speculative.combined_drafters import make_engine_drafter
from gencli.speculative.drafter import Drafter
from gencli.text.tokenizer import Tokenizer, end_ids
from processors.base import Compiler, Env
from processors.errors import ProcessorsError, is_out_of_memory
from processors.registry import Registry, builtin_registry
from processors.rng import derive
from processors.rows import Rows
from processors.verification import verify


class Engine:
    """Continuous batching of requests on one model.

    `max_batch`: sequences that run at once. `step_tokens`: token budget of a step (see Scheduler; None: see
    step_limit). A text does not depend on the other requests of its batch. `clock`: measures drafting, in
    seconds. `window`: limit of sequences that may overtake a waiting one. `run_ahead`: launch the next step
    before the last one is read (see RunAhead); None: if the device is CUDA. `amateurs`: models for
    contrastive decoding, by name. Companions use lanes from `max_batch` on.

    The beams of a beam search form a group of sequences that is scheduled with all others; so do the
    candidates of a contrastive search. Samples of a request with `best_of` are ordinary sequences; the best
    texts are reported when all samples have ended.
    """

    def __init__(
        self,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        *,
        max_batch: int = 8,
        step_tokens: int | None = None,
        registry: Registry | None = None,
        drafter: Drafter | None = None,
        grammars: Compiler | None = None,
        amateurs: Mapping[str, ModelRunner] | None = None,
        clock: Clock | None = None,
        share_prefixes: bool = True,
        window: int = WINDOW,
        run_ahead: bool | None = None,
    ) -> None:
        spec, self.ahead = runner.spec, make_ahead(runner, run_ahead)
        self._runner, self._tokenizer = self.ahead or runner, tokenizer
        self._registry, self._max_batch = registry or builtin_registry(), max_batch
        self.eos_ids = end_ids(spec.eos_ids, tokenizer, spec.vocab_size)
        self._scheduler = Scheduler(
            max_batch=max_batch,
            step_tokens=step_tokens,
            can_rollback=spec.can_rollback,
            share_prefixes=share_prefixes,
            rope_switches=spec.rope_switches,
            window=window,
            score_rows=slice_rows(spec.vocab_size),
        )
        # Sampling needs float64, which Apple's GPU lacks: there the logits processors run on the CPU.
        device = torch.device("cpu") if spec.device.type == "mps" else spec.device
        parts = make_parts(
            self._runner,
            self.ahead,
            self._scheduler,
            Env(spec.vocab_size, tokenizer, self.eos_ids, device, grammars),
            self._registry,
            drafter=drafter,
            amateurs=amateurs,
            clock=clock,
        )
        self._state, self._owners, self._room = parts.state, parts.owners, parts.room
        self._speculation, self._companions = parts.speculation, parts.companions
        self._steps, self._outputs, self._endings = parts.steps, parts.outputs, parts.endings
        self._beams, self._contrastive, self._best_of = parts.beams, parts.contrastive, BestOf()
        self.pipeline, self.notices = parts.state.pipeline, parts.notices
        self._interrupted = False
        self._changing = threading.Condition(threading.RLock())  # held during a step or a change of the queue
        self.occupancy = 0.0  # running sequences / limit, in the last step

    def effective(self, request: Request) -> Request:
        """Return the request as it will run."""
        num_ids, width = self._tokenizer.vocab_size, self._runner.spec.vocab_size
        return effective(request, num_ids=num_ids, width=width, registry=self._registry)

    @torch.inference_mode()
    def submit(self, request: Request) -> None:
        """Queue a request; from another thread this waits for the end of the current step.

        Raises UsageError or ProcessorsError for a request that cannot run; the engine is unchanged then.
        """
        with self._changing, device_faults():
            check_beams(request, self._max_batch)
            check_contrastive(request, self._runner.spec, self._max_batch)
            wanted, request = request, self.effective(expand_samples(request))
            check_request(request, self._runner.spec)
            self._companions.check(request)
            context = self._companions.context(request)
            if request.given is not None:
                context += 1  # the last token is not fed
                check_given(request, context)
            if request.prefix:
                check_prefix(request, context)
            self._state.check(request, context)
            self._speculation.check(request)
            self.notices += self._speculation.guard(request)
            check_rewind(request, self._runner.spec, self.pipeline)
            self._endings.forget(request.id)
            self._best_of.watch(wanted)
            self._steps.expect(request)
            now = time.monotonic()
            self._scheduler.add(Samples(request, partial(self._sample, request, context, now), submitted=now))
            self._changing.notify_all()

    def _sample(self, request: Request, context: int, submitted: float, sample: int) -> Sequence:
        stream = text_stream(request, self._tokenizer, self.eos_ids)
        seed, scoring = derive(request.seed, sample), scoring_of(request, sample)
        sequence = Sequence(request, sample, seed, stream, submitted, context, scoring=scoring)
        if request.beams is not None:
            self._beams.create(sequence)
        elif request.contrastive is not None:
            self._contrastive.create(sequence)
        return sequence

    def run(self, *, is_merged: bool = False) -> Iterator[Event]:
        """Generate until all submitted requests have ended. Requests may be submitted between two events.

        `is_merged`: the samples of a request that end before they begin are one event (see `Finish.more`).
        """
        while self._scheduler.has_work:
            events = self._end_all() if self._interrupted else self.step(is_merged=True)
            yield from events if is_merged else by_sample(events)
        self._interrupted = False

    @property
    def has_work(self) -> bool:
        """Whether any request has not ended."""
        return self._scheduler.has_work

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is work, at most `timeout` seconds; return whether there is. For idle loops."""
        with self._changing:
            return self._changing.wait_for(lambda: self.has_work, timeout)

    def step(self, *, is_merged: bool = False) -> list[Event]:
        """Run one step and return its events, [] without work. For the caller's own loop instead of `run`."""
        with self._changing:
            try:
                events = [*self._endings.cancelled(), *self._endings.late()]
                if events and not is_merged:
                    events = [*by_sample(events)]
                if self._scheduler.has_work:
                    events += [*self._scheduler.reading(), *self._step()]
                return [*self._best_of.select(events)]
            except Exception as error:
                if fault := DeviceError.of(error):
                    raise fault from error
                raise

    def _end_all(self) -> list[Event]:
        with self._changing, device_faults():
            return [*self._best_of.select(self._endings.everything())]

    def cancel(self, request_id: str) -> None:
        """End all samples of a request at the next step, with their texts so far (reason `interrupted`).

        Safe from another thread. An unknown or ended id is ignored. Texts of other requests do not change.
        """
        self._endings.cancel(request_id)

    def interrupt(self) -> None:
        """End all requests, with their texts so far, at the next step. Safe in a signal handler."""
        self._interrupted = True

    def end_waiting(self) -> Iterator[Event]:
        """End the requests that have not begun; running ones continue."""
        yield from by_sample(self._best_of.select(self._endings.waiting()))

    @property
    def limit(self) -> int:
        """Number of sequences that may run at once: `max_batch`, halved after each out-of-memory."""
        return self._scheduler.limit

    @torch.inference_mode()
    def _step(self) -> list[Event]:
        events, result, is_full = list[Event](), None, False
        try:
            events += [*self._admit(), *self._scores()]
            self.occupancy = len(self._scheduler.running) / self.limit
            result = self._steps.run()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            is_full = True
        if is_full:  # outside the except block, whose traceback would keep tensors alive
            return events + self._preempt_all()
        events += self._scores()
        events += self._outputs.take(result) if result else []
        return events + (self._preempt_all() if self._room.is_full else [])

    def _scores(self) -> Iterator[Event]:
        return self._outputs.scores() if self._steps.has_asked else iter(())

    def _preempt_all(self) -> list[Event]:
        """Restart the running sequences after out-of-memory, with half as many at once.

        A single running sequence restarts once more alone; if it already ran alone, it fails.
        """
        self._room.is_full = False
        num_used = self._scheduler.num_used
        preempted, slots, num_idle = self._scheduler.preempt_all()
        self._owners.release(slots, slots)
        for sequence in preempted:
            sequence.unit.restart(text_stream(sequence.request, self._tokenizer, self.eos_ids))
        self._owners.trim()
        if len(preempted) > 1:
            self.notices.append(
                f"The memory is full with {num_used} sequences at once; from now on {self.limit} run."
            )
            return []
        if num_idle:  # freeing the lanes of ended sequences may suffice
            return []
        full = GenerationError("The memory is full, though nothing else runs.")
        return [event for sequence in preempted for event in self._endings.fail(sequence.unit, full)]

    def _admit(self) -> list[Event]:
        """Assign slots to waiting sequences. Return error events of sequences that a stage rejects now."""
        events: list[Event] = []
        for sequence in self._scheduler.admit():
            sequence.start(time.monotonic())
            try:
                self._owners.admit(sequence)
            except ProcessorsError as error:
                events += self._endings.fail(sequence.unit, error)
        return events


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
    """Return the parts of an engine on `runner`, which is `ahead` if it runs ahead; others as in Engine.

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
    others = (amateur.spec.graphs for amateur in (amateurs or {}).values())
    for source in (spec.graphs, graphs, ahead, *others):
        if source is not None:
            source.notices = notices
    return EngineParts(
        state, speculation, companions, owners, endings, beams, contrastive, steps, outputs, room, notices
    )


class StepRunner:
    """Runs the model on the feeds of a step, and chooses the tokens of its sequences.

    `ahead` is the runner, if it runs ahead. `has_asked`: whether any request so far asked for
    log-probabilities. What no request so far has asked for costs a step nothing.
    """

    def __init__(
        self,
        runner: ModelRunner,
        ahead: RunAhead | None,
        scheduler: Scheduler,
        state: ProcessorState,
        speculation: Speculation,
        companions: Companions,
        beams: BeamSearches,
        contrastive: ContrastiveSearches,
    ) -> None:
        self._runner, self._scheduler, self._state, self._ahead = runner, scheduler, state, ahead
        self._speculation, self._companions = speculation, companions
        self._beams, self._contrastive, self._pipeline = beams, contrastive, state.pipeline
        self._device = state.history.device
        self._has_given = False  # whether any request so far had a given output or a prefix
        self._may_hold = False  # whether tokens of any request so far may be taken back
        self.has_asked = False

    def expect(self, request: Request) -> None:
        """Be ready for what a request asks of the steps in which it runs."""
        self._has_given |= request.given is not None or bool(request.prefix)
        self._may_hold |= can_rewind(request)
        self.has_asked |= request.logprobs is not None or request.prompt_logprobs is not None

    def run(self) -> StepResult | None:
        """Run the model and choose tokens. Commits nothing and emits no event."""
        propose = self._propose if self._has_given or self._may_hold else self._speculation.propose
        step = self._scheduler.plan(propose, self._companions.is_behind)
        for fork in step.forks:
            self._runner.fork(fork.source, fork.target)
            self._runner.truncate(fork.target, fork.length)
        pairing = self._companions.pair(step)
        if not pairing.has_feeds:
            return None
        sampled = step.sampled
        rows = self._state.rows(sampled)
        own, others = pairing.forward()
        if others.inner and others.inner.states is not None:
            self._contrastive.read(step, others.inner.states.to(self._device))
        scored = None
        if step.plan.num_scored:
            own, scored = split_scores(
                step.plan.feeds, [sequence.scoring for sequence in step.sequences], own
            )
        logits = pairing.guided(own, others).to(self._device)
        if not sampled:
            if scored:
                scored.take(scored.measured.packed.tolist())
            return None
        watch, given = None, given_tokens(sampled, self._device) if self._has_given else None
        if self.has_asked:
            counts = [sequence.request.logprobs for sequence, _ in sampled]
            watch = Watch.of(counts, own, logits, rows, given)
        ranked = choices = processed = None
        groups = [sequence.group for sequence, _ in sampled]
        is_searching = groups.count(None) < len(groups)
        verified: Verified
        if watch or given is not None or rows.drafts.shape[1] or is_searching:
            verified, processed = self._verified(sampled, logits, rows, given, watch, is_searching)
        else:  # only the tokens are needed, not the processed logits
            verified = verify(self._state.chooser(logits, rows), rows)
        if processed is not None and is_searching:
            ranked = self._beams.rank(sampled, first_rows(rows), processed)
            choices = self._contrastive.choose(sampled, first_rows(rows), processed)
        measured = None
        if watch and processed is not None:
            measured = (watch.measured(processed, verified[0]), watch.owners)
        launch = partial(self._ahead.launch, sampled, verified[0], self._scheduler) if self._ahead else None
        parts = (ranked, choices, measured, scored)
        result = StepResult.read(sampled, own, logits, rows, verified, *parts, meanwhile=launch)
        if self._ahead:
            self._ahead.read(result.tokens)
        if watch and processed is not None and (ranked or choices):
            result = replace(result, inspect=partial(watch.of_beams, processed))
        self._speculation.verified(step.plan)
        return result

    def _verified(
        self,
        sampled: SampledSequences,
        logits: Tensor,
        rows: Rows,
        given: Tensor | None,
        watch: Watch | None,
        is_searching: bool,
    ) -> tuple[Verified, Tensor | None]:
        """Return the verified tokens, and the processed logits [R, V] if anything reads them."""
        verifier = self._state.verifier
        reads = watch is not None or is_searching or verifier.reads(rows)
        seen = watch.seen if watch and watch.ids.shape[1] else None  # no ids: nothing asks what masks them
        processed, tokens = self._state.chooser.process(logits, rows, seen, reads=reads)
        if not reads and given is None and not any(sequence.request.best_of for sequence, _ in sampled):
            return (verifier.tokens(processed, rows, tokens), None), None
        draw = partial(verifier, processed, rows, self._speculation.proposal(sampled), tokens)
        return draw() if given is None else accept_given(given, draw, sampled), processed

    def _propose(self, sequences: list[Sequence]) -> dict[int, tuple[int, ...]]:
        """Return the drafts of sequences: of the drafter, or the tokens that are held or known."""
        given = [sequence for sequence in sequences if sequence.known]
        drawn = [sequence for sequence in sequences if not sequence.known]
        runs = self._speculation.propose([sequence for sequence in drawn if not sequence.held])
        rows = self._scheduler.score_rows // 2  # the logits are held twice: raw and processed
        return runs | held_drafts(drawn) | given_drafts(given, self._pipeline, self._runner.spec, rows)
