"""The generate loop: requests in, events out, one step at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch

from gencli.core.events import Event
from gencli.core.request import Request
from gencli.engine.admission import check_request, effective, text_stream
from gencli.engine.ahead import make_ahead
from gencli.engine.beams.best_of import BestOf, expand_samples
from gencli.engine.beams.searches import BeamSearches, check_beams
from gencli.engine.branches import Branches
from gencli.engine.companions import Companions
from gencli.engine.contrastive.searches import ContrastiveSearches, check_contrastive
from gencli.engine.endings import Endings
from gencli.engine.given import accept_given, check_given, check_prefix, given_drafts, given_tokens
from gencli.engine.logprobs import Watch
from gencli.engine.outputs import Outputs
from gencli.engine.prompt_scores import scoring_of, slice_rows, split_scores
from gencli.engine.queue import WINDOW, Samples
from gencli.engine.rewind import can_rewind, check_rewind, held_drafts
from gencli.engine.room import Room
from gencli.engine.scheduler import Scheduler
from gencli.engine.sequence import Sequence
from gencli.engine.slot_state import Lanes, ProcessorState, SlotOwner
from gencli.engine.speculation import Clock, Speculation
from gencli.engine.step_result import StepResult, first_rows
from gencli.errors import DeviceError, GenerationError, device_faults
from gencli.models.base import ModelRunner
from gencli.models.files.vocabulary import end_ids
from gencli.speculative.base import Drafter
from gencli.speculative.fallback import make_engine_drafter
from gencli.text.tokenizer import Tokenizer
from processors.base import Compiler, Env
from processors.errors import ProcessorsError
from processors.machine_faults import is_out_of_memory
from processors.registry import Registry, builtin_registry
from processors.rng import derive
from processors.verify import verify

__all__ = ["Engine"]


class Engine:
    """Continuous batching of requests on one model.

    `max_batch`: sequences that run at once. `step_tokens`: token budget of a step (see Scheduler; None: see
    step_limit). No text depends on the requests that run beside it. `clock`: times drafts, in seconds.
    `window`: most texts that may overtake a waiting one.
    `run_ahead`: launch the next step before the last one is read (see RunAhead); None: if the device is CUDA.
    `amateurs`: models for contrastive decoding, by name. Guided requests use lanes from `max_batch` on.

    The beams of a search are a group of sequences, scheduled with all others; so are the candidates of a
    contrastive search. The samples of a request with
    `best_of` are ordinary ones; its best texts are reported when all of them have ended.
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
        runner = self.ahead or runner
        # Sampling needs float64, which Apple's GPU lacks: there the logits processors run on the CPU.
        self._device = torch.device("cpu") if spec.device.type == "mps" else spec.device
        self.eos_ids = end_ids(spec.eos_ids, tokenizer, spec.vocab_size)
        self._runner, self._tokenizer, self._registry = runner, tokenizer, registry or builtin_registry()
        self._max_batch = max_batch
        self._score_rows = slice_rows(spec.vocab_size)
        self._scheduler = Scheduler(
            max_batch=max_batch,
            step_tokens=step_tokens,
            can_rollback=spec.can_rollback,
            share_prefixes=share_prefixes,
            rope_switches=spec.rope_switches,
            window=window,
            score_rows=self._score_rows,
        )
        env = Env(spec.vocab_size, tokenizer, self.eos_ids, self._device, grammars)
        graphs = spec.graphs.like() if spec.graphs else None  # memory of their own: both run in a step
        self._state = state = ProcessorState(env, self._registry, num_slots=max_batch, graphs=graphs)
        self.pipeline = state.pipeline
        engine_drafter = make_engine_drafter(drafter, self.pipeline, state.sampler, state.history)
        self._speculation = Speculation(engine_drafter, self.pipeline, self._registry, spec, clock=clock)
        self._companions = Companions(runner, amateurs, offset=max_batch, budget=self._scheduler.step_tokens)
        self._owners: tuple[SlotOwner, ...] = (
            Lanes(runner, self.ahead),
            state,
            self._speculation,
            self._companions,
        )
        branches = Branches(self._scheduler, self.pipeline, fork=self._fork, release=self._release)
        self._best_of, self._room = BestOf(), Room()
        self._endings = Endings(self._scheduler, self.pipeline, self._release)
        self._beams = BeamSearches(self.pipeline, branches)
        self._contrastive = ContrastiveSearches(self.pipeline, branches, self._endings.completion)
        self._outputs = Outputs(
            runner,
            self._scheduler,
            state,
            self._speculation,
            self._beams,
            self._contrastive,
            self._endings,
            self._room,
        )
        self.notices = self.pipeline.notices  # the same list: pipeline and engine append to it
        self.notices += engine_drafter.notices
        others = (one.spec.graphs for one in (amateurs or {}).values())
        for one in (spec.graphs, graphs, self.ahead, *others):
            if one is not None:
                one.notices = self.notices
        self._interrupted = False
        self._has_given = False  # whether any request so far had a given output or a prefix
        self._may_hold = False  # whether tokens of any request so far may be taken back
        self._has_asked = False  # whether any request so far asked for log-probabilities
        self._changing = threading.Condition(threading.RLock())  # held by a step, and to change the queue
        self.occupancy = 0.0  # of the last step: running sequences / limit

    def effective(self, request: Request) -> Request:
        """Return the request as it will run."""
        known, width = self._tokenizer.vocab_size, self._runner.spec.vocab_size
        return effective(request, known=known, width=width, registry=self._registry)

    @torch.inference_mode()
    def submit(self, request: Request) -> None:
        """Queue a request; from another thread, it waits for the step that runs.

        Raises UsageError or ProcessorsError for a request that cannot run; nothing has changed then.
        """
        with self._changing, device_faults():
            check_beams(request, self._max_batch)
            check_contrastive(request, self._runner.spec, self._max_batch)
            wanted, request = request, self.effective(expand_samples(request))
            check_request(request, self._runner.spec)
            self._companions.check(request)
            context = self._companions.context(request)
            if request.given is not None:
                context += 1  # the last token is not read
                check_given(request, context)
                self._has_given = True
            if request.prefix:
                check_prefix(request, context)
                self._has_given = True
            self._state.check(request, context)
            self._speculation.check(request)
            self.notices += self._speculation.guard(request)
            check_rewind(request, self._runner.spec, self.pipeline)
            self._may_hold |= can_rewind(request)
            self._endings.forget(request.id)
            self._best_of.watch(wanted)
            self._has_asked |= request.logprobs is not None or request.prompt_logprobs is not None
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

    def run(self) -> Iterator[Event]:
        """Generate until all submitted requests have ended. Requests may be submitted between two events."""
        while self._scheduler.has_work:
            yield from self._end_all() if self._interrupted else self.step()
        self._interrupted = False

    @property
    def has_work(self) -> bool:
        """Whether any request has not ended."""
        return self._scheduler.has_work

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is work, `timeout` seconds at most; return whether there is. For idle loops."""
        with self._changing:
            return self._changing.wait_for(lambda: self.has_work, timeout)

    def step(self) -> list[Event]:
        """Run one step; its events, none without work. For a loop of the caller's own, in place of `run`."""
        with self._changing:
            try:
                events = [*self._endings.cancelled(), *self._endings.late()]
                if self._scheduler.has_work:
                    events += [*self._scheduler.reading(), *self._step()]
                return [*self._best_of.select(events)]
            except Exception as error:
                if found := DeviceError.of(error):
                    raise found from error
                raise

    def _end_all(self) -> list[Event]:
        with self._changing, device_faults():
            return [*self._best_of.select(self._endings.everything())]

    def cancel(self, request_id: str) -> None:
        """End all samples of a request at the next step, with their texts so far (reason `interrupted`).

        Safe from another thread. An id that is not known, or has ended, changes nothing. The texts of other
        requests stay the same.
        """
        self._endings.cancel(request_id)

    def interrupt(self) -> None:
        """End all requests, with their texts so far, at the next step. Safe in a signal handler."""
        self._interrupted = True

    def end_waiting(self) -> Iterator[Event]:
        """End the requests that have not begun; running ones continue."""
        yield from self._best_of.select(self._endings.waiting())

    @property
    def limit(self) -> int:
        """Number of sequences that may run at once: `max_batch`, halved after each out-of-memory."""
        return self._scheduler.limit

    @torch.inference_mode()
    def _step(self) -> list[Event]:
        events, result, is_full = list[Event](), None, False
        try:
            events += [*self._admit(), *self._scores()]
            result = self._choose()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            is_full = True
        if is_full:  # outside the except block, whose traceback would keep tensors alive
            return events + self._preempt_all()
        events += self._scores()
        events += self._outputs.take(result) if result else []
        return events + (self._preempt_all() if self._room.is_full else [])

    def _choose(self) -> StepResult | None:
        """Run the model and choose tokens. Commits nothing and emits no event."""
        self.occupancy = len(self._scheduler.running) / self.limit
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
            own, scored = split_scores(step.plan.feeds, [one.scoring for one in step.sequences], own)
        logits = pairing.guided(own, others).to(self._device)
        if not sampled:
            if scored:
                scored.take(scored.measured.packed.tolist())
            return None
        ranked, choices, groups = None, None, [sequence.group for sequence, _ in sampled]
        watch, given = None, given_tokens(sampled, self._device) if self._has_given else None
        if self._has_asked:
            watch = Watch.of([one.request.logprobs for one, _ in sampled], own, logits, rows, given)
        if watch or given is not None or rows.drafts.shape[1] or groups.count(None) < len(groups):
            processed = self.pipeline(logits, rows, watch.seen if watch else None)
            draw = partial(self._state.verifier, processed, rows, self._speculation.proposal(sampled))
            verified = draw() if given is None else accept_given(given, draw, sampled)
            ranked = self._beams.rank(sampled, first_rows(rows), processed)
            choices = self._contrastive.choose(sampled, first_rows(rows), processed)
        else:  # only the tokens are needed, not the processed logits
            verified = verify(self._state.chooser(logits, rows), rows)
        measured = (watch.measured(processed, verified[0]), watch.owners) if watch else None
        launch = partial(self.ahead.launch, sampled, verified[0], self._scheduler) if self.ahead else None
        parts = (ranked, choices, measured, scored)
        result = StepResult.read(sampled, own, logits, rows, verified, *parts, meanwhile=launch)
        if self.ahead:
            self.ahead.read(result.tokens)
        if watch and (ranked or choices):
            result = replace(result, inspect=partial(watch.of_beams, processed))
        self._speculation.verified(step.plan)
        return result

    def _scores(self) -> Iterator[Event]:
        return self._outputs.scores() if self._has_asked else iter(())

    def _propose(self, sequences: list[Sequence]) -> dict[int, tuple[int, ...]]:
        """Return the drafts of sequences: of the drafter, or the tokens that are held or known."""
        given = [one for one in sequences if one.known]
        drawn = [one for one in sequences if not one.known]
        runs = self._speculation.propose([one for one in drawn if not one.held])
        rows = self._score_rows // 2  # the logits are held twice: raw and processed
        return runs | held_drafts(drawn) | given_drafts(given, self.pipeline, self._runner.spec, rows)

    def _preempt_all(self) -> list[Event]:
        """After out-of-memory: restart the running sequences, half as many at once.

        A single one restarts alone, and fails if it was alone.
        """
        self._room.is_full = False
        num_used = self._scheduler.num_used
        preempted, slots, num_idle = self._scheduler.preempt_all()
        self._release(slots, slots)
        for sequence in preempted:
            sequence.unit.restart(text_stream(sequence.request, self._tokenizer, self.eos_ids))
        for owner in reversed(self._owners):
            owner.trim()
        if len(preempted) > 1:
            self.notices.append(
                f"The memory is full with {num_used} sequences at once; from now on {self.limit} run."
            )
            return []
        if num_idle:  # without the lanes of ended sequences there may be room enough
            return []
        full = GenerationError("The memory is full, though nothing else runs.")
        return [event for sequence in preempted for event in self._endings.fail(sequence.unit, full)]

    def _admit(self) -> list[Event]:
        """Give slots to waiting sequences. Return error events of those that a stage refuses now."""
        events: list[Event] = []
        for sequence in self._scheduler.admit():
            sequence.start(time.monotonic())
            try:
                for owner in self._owners:
                    owner.admit(sequence)
            except ProcessorsError as error:
                events += self._endings.fail(sequence.unit, error)
        return events

    def _fork(self, source: int, target: int) -> None:
        """Copy the lane and the state of a beam to another slot."""
        with self._room:
            self._runner.fork(source, target)
            self._state.fork(source, target)

    def _release(self, lanes: Iterable[int], slots: Iterable[int]) -> None:
        """Empty KV lanes, and forget all else that belongs to the requests of slots."""
        for lane in lanes:
            self._runner.release(lane)
        for slot in slots:
            for owner in self._owners:
                owner.release(slot)
