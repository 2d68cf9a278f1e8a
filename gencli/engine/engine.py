"""The generate loop: requests in, events out, one step at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch

from gencli.core.events import Event, by_sample
from gencli.core.request import Request
from gencli.engine.beam_search import BeamSearches, Branches, check_beams
from gencli.engine.best_of import BestOf
from gencli.engine.contrastive_search import ContrastiveSearch, ContrastiveSearches, check_contrastive
from gencli.engine.drafts import Speculation
from gencli.engine.endings import Endings
from gencli.engine.guidance import Companions
from gencli.engine.known_tokens import KnownTokens, check_given, check_prefix
from gencli.engine.logprobs import Explanations, PromptScoringHook, TokenLogprobsHook, slice_rows
from gencli.engine.rewind import Rewind, check_rewind
from gencli.engine.run_ahead import LaunchAhead, make_ahead
from gencli.engine.scheduler import WINDOW, OomGuard, Samples, Scheduler
from gencli.engine.sequence import PromptScoring, Sequence
from gencli.engine.slot_state import ProcessorState, SlotOwners, check_request, effective, text_stream
from gencli.engine.step_runner import StepRunner
from gencli.engine.tree_walk import DraftWalk
from gencli.errors import DeviceError, GenerationError, device_faults
from gencli.models.model_runner import ModelRunner
from gencli.speculative.adaptive_drafts import Clock
from gencli.speculative.combined_drafters import make_engine_drafter
from gencli.speculative.drafter import Drafter
from gencli.text.tokenizer import Tokenizer, end_ids
from processors.base import Compiler, Env
from processors.errors import ProcessorsError
from processors.registry import Registry, builtin_registry
from processors.rng import derive


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
        self._runner, self._tokenizer, amateurs = self.ahead or runner, tokenizer, amateurs or {}
        self._registry, self._max_batch = registry or builtin_registry(), max_batch
        self.eos_ids = end_ids(spec.eos_ids, tokenizer, spec.vocab_size)
        self._scheduler = scheduler = Scheduler(
            max_batch=max_batch,
            step_tokens=step_tokens,
            can_rollback=spec.can_rollback,
            share_prefixes=share_prefixes,
            rope_switches=spec.rope_switches,
            window=window,
            score_rows=slice_rows(spec.vocab_size),
        )
        device = torch.device("cpu") if spec.device.type == "mps" else spec.device  # see StepRunner
        env = Env(spec.vocab_size, tokenizer, self.eos_ids, device, grammars)
        graphs = spec.graphs.like() if spec.graphs else None  # separate memory, because both run in a step
        self._state = state = ProcessorState(env, self._registry, num_slots=max_batch, graphs=graphs)
        self.pipeline = pipeline = state.pipeline
        self.notices = pipeline.notices  # the one list to which all parts append
        for source in (spec.graphs, graphs, self.ahead, *(each.spec.graphs for each in amateurs.values())):
            if source is not None:
                source.notices = self.notices
        engine_drafter = make_engine_drafter(drafter, pipeline, state.sampler, state.history)
        self.notices += engine_drafter.notices
        self._guard = OomGuard()
        self._owners = owners = SlotOwners(self._runner, state, self._guard)
        self._endings = endings = Endings(scheduler, pipeline, owners.release)
        branches = Branches(scheduler, pipeline, fork=owners.fork, release=owners.release)
        self._speculation = Speculation(
            engine_drafter, pipeline, self._registry, spec, amateurs=amateurs, clock=clock
        )
        # Companions use the lanes after the slots of the scheduler.
        self._companions = Companions(
            self._runner, amateurs, offset=scheduler.limit, budget=scheduler.step_tokens
        )
        self._beams = BeamSearches(pipeline, branches, endings)
        self._best_of = BestOf()
        # In the order of their calls: prompts leave a step's logits before guidance changes those of samples,
        # trees are walked by these, and known tokens are there before log-probabilities are measured.
        owners.register(
            *([LaunchAhead(self.ahead, scheduler)] if self.ahead else []),
            PromptScoringHook(scheduler, endings),
            self._companions,
            DraftWalk(self._runner, state),
            self._speculation,
            Rewind(pipeline),
            KnownTokens(pipeline, spec, score_rows=scheduler.score_rows),
            TokenLogprobsHook(),
            Explanations(state),
            self._best_of,
            self._beams,
            ContrastiveSearches(pipeline, branches, endings),
        )
        self._steps = StepRunner(self._runner, scheduler, state, owners, endings, self._guard)
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
            wanted, num_drawn = request, request.n if request.best_of is None else request.best_of
            request = self.effective(replace(request, n=num_drawn))
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
            self._endings.watch(request)
            self._best_of.watch(wanted)
            now = time.monotonic()
            self._scheduler.add(Samples(request, partial(self._sample, request, context, now), submitted=now))
            self._changing.notify_all()

    def _sample(self, request: Request, context: int, submitted: float, sample: int) -> Sequence:
        stream = text_stream(request, self._tokenizer, self.eos_ids)
        seed, is_scored = derive(request.seed, sample), request.prompt_logprobs is not None and sample == 0
        scoring = PromptScoring(request) if is_scored else None
        sequence = Sequence(request, sample, seed, stream, submitted, context, scoring=scoring)
        sequence.needs_states = request.contrastive is not None or self._speculation.needs_states(request)
        if request.beams is not None:
            self._beams.create(sequence)
        elif request.contrastive is not None:
            ContrastiveSearch(sequence)
        return sequence

    def run(self, *, is_merged: bool = False) -> Iterator[Event]:
        """Generate until all submitted requests have ended. Requests may be submitted between two events.

        `is_merged`: the samples of a request that end before they begin are one event (see `Finish.more`).
        """
        while self._scheduler.has_work:
            if self._interrupted:
                with self._changing, device_faults():
                    events = [*self._best_of.select(self._endings.everything())]
            else:
                events = self.step(is_merged=True)
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
        step, scheduler = None, self._scheduler
        with self._changing, torch.inference_mode():
            try:
                events = [*self._endings.due()] if self._endings.may_be_due else []
                if events and not is_merged:
                    events = [*by_sample(events)]
                if scheduler.has_work:
                    is_queued = bool(scheduler.waiting or scheduler.pending)
                    if is_queued or scheduler.may_read:
                        events += scheduler.reading()
                    try:
                        if is_queued:
                            events += self._admit()
                        for hook in self._owners.active:
                            events += hook.report()
                        self.occupancy = len(scheduler.running) / scheduler.limit
                        step = self._steps.run()
                    except Exception as error:
                        if not self._guard.takes(error):
                            raise
                    if not self._guard.is_full:
                        for hook in self._owners.active:
                            events += hook.report()
                        events += self._steps.take(step) if step else []
                    if self._guard.is_full:  # outside the block, whose traceback would keep tensors alive
                        events += self._preempt_all()
                return [*self._best_of.select(events)] if self._best_of.pools else events
            except Exception as error:
                if fault := DeviceError.of(error):
                    raise fault from error
                raise

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

    def _preempt_all(self) -> list[Event]:
        """Restart the running sequences after out-of-memory, with half as many at once.

        A single running sequence restarts once more alone; if it already ran alone, it fails.
        """
        self._guard.is_full = False
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
            sequence.started = time.monotonic()
            try:
                self._owners.admit(sequence)
            except ProcessorsError as error:
                events += self._endings.fail(sequence.unit, error)
        return events
