"""The generate loop: requests in, events out, one step at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial

import torch

from gencli.core.events import Event
from gencli.core.request import Request
from gencli.engine.admission import admission, check_request, effective, text_stream
from gencli.engine.companions import Companions
from gencli.engine.endings import Endings
from gencli.engine.samples import Samples
from gencli.engine.scheduler import SampledSequences, Scheduler
from gencli.engine.sequence import Sequence, Taken, reading
from gencli.engine.speculation import Clock, Speculation
from gencli.engine.step_result import StepResult
from gencli.errors import GenerationError, is_out_of_memory
from gencli.models.base import ModelRunner
from gencli.models.files.vocabulary import end_ids
from gencli.speculative.base import Drafter
from gencli.speculative.engine_drafter import make_engine_drafter
from gencli.text.tokenizer import Tokenizer
from processors.base import Compiler, Env
from processors.errors import ProcessorsError
from processors.history import History
from processors.pipeline import Pipeline
from processors.registry import Registry, builtin_registry
from processors.rng import derive, signed
from processors.rows import Rows
from processors.sampler import Sampler
from processors.verifier import Verifier

__all__ = ["Engine"]


class Engine:
    """Continuous batching of requests on one model.

    `max_batch`: sequences that run at once. `step_tokens`: token budget of a step (see Scheduler; None: see
    step_limit). No text depends on the requests that run beside it. `clock`: times drafts, in seconds.
    `amateurs`: models for contrastive decoding, by name. Guided requests use lanes from `max_batch` on.
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
    ) -> None:
        spec = runner.spec
        # Sampling needs float64, which Apple's GPU lacks: there the logits processors run on the CPU.
        device = torch.device("cpu") if spec.device.type == "mps" else spec.device
        self.eos_ids = end_ids(spec.eos_ids, tokenizer, spec.vocab_size)
        self._runner, self._tokenizer, self._registry = runner, tokenizer, registry or builtin_registry()
        self._scheduler = Scheduler(
            max_batch=max_batch,
            step_tokens=step_tokens,
            can_rollback=spec.can_rollback,
            share_prefixes=share_prefixes,
            rope_switches=spec.rope_switches,
        )
        self._companions = Companions(runner, amateurs, offset=max_batch, budget=self._scheduler.step_tokens)
        self._history = History(device, slots=max_batch + 1)
        env = Env(spec.vocab_size, tokenizer, self.eos_ids, device, grammars)
        self.pipeline = Pipeline(env, self._registry)
        self._sampler = Sampler()
        self._verifier = Verifier(self._sampler)
        engine_drafter = make_engine_drafter(drafter, self.pipeline, self._sampler, self._history)
        self._speculation = Speculation(engine_drafter, self.pipeline, self._registry, spec, clock=clock)
        self.notices = self.pipeline.notices  # the same list: pipeline and engine append to it
        self.notices += engine_drafter.notices
        self._spare_slot = max_batch  # for checking requests on submission
        self._interrupted = False
        self._endings = Endings(self._scheduler, self.pipeline, self._release)
        self._changing = threading.RLock()  # held by a step, and by what changes the queue
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
        with self._changing:
            request, spec = self.effective(request), self._runner.spec
            check_request(request, spec)
            self._companions.check(request)
            context = self._companions.context(request)
            self.pipeline.admit(self._spare_slot, request.chain, admission(request, context))
            self.pipeline.release(self._spare_slot)
            self._speculation.check(request)
            self.notices += self._speculation.guard(request)
            self._endings.forget(request.id)
            now = time.monotonic()
            make = partial(self._sample, request, context, now)
            self._scheduler.add(Samples(request, make, submitted=now))

    def _sample(self, request: Request, context: int, submitted: float, sample: int) -> Sequence:
        stream = text_stream(request, self._tokenizer, self.eos_ids)
        seed = derive(request.seed, sample)
        return Sequence(request, sample, seed, stream, submitted=submitted, context=context)

    def run(self) -> Iterator[Event]:
        """Generate until all submitted requests have ended. Requests may be submitted between two events."""
        while self._scheduler.has_work:
            if self._interrupted:
                yield from self._endings.everything()
            else:
                yield from self._scheduler.pending.end_late()
                yield from self.step()
        self._interrupted = False

    @property
    def has_work(self) -> bool:
        """Whether any request has not ended."""
        return self._scheduler.has_work

    def step(self) -> list[Event]:
        """Run one step; its events, none without work. For a loop of the caller's own, in place of `run`."""
        with self._changing:
            events = [*self._endings.cancelled(), *self._scheduler.pending.end_late()]
            if not self._scheduler.has_work:
                return events
            return [*events, *reading(self._scheduler.next_to_run()), *self._step()]

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
        yield from self._endings.waiting()

    @property
    def limit(self) -> int:
        """Number of samples that may run at once: `max_batch`, halved after each out-of-memory."""
        return self._scheduler.limit

    @torch.inference_mode()
    def _step(self) -> list[Event]:
        events, result, is_full = self._endings.late(), None, False
        try:
            events += self._admit()
            result = self._choose()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            is_full = True
        if is_full:  # outside the except block, whose traceback would keep tensors alive
            return events + self._preempt_all()
        return events + (self._process_output(result) if result else [])

    def _choose(self) -> StepResult | None:
        """Run the model and choose tokens. Commits nothing and emits no event."""
        self.occupancy = len(self._scheduler.running) / self.limit
        step = self._scheduler.plan(self._speculation.propose, self._companions.is_behind)
        for fork in step.forks:
            self._runner.fork(fork.source, fork.target)
            self._runner.truncate(fork.target, fork.length)
        pairing = self._companions.pair(step)
        if not pairing.has_feeds:
            return None
        sampled = step.sampled
        rows = self._rows(sampled)
        own, companions = pairing.forward()
        logits = pairing.guided(own, companions).to(self._history.device)
        if not sampled:
            return None
        proposal = self._speculation.proposal(sampled)
        verified = self._verifier(self.pipeline(logits, rows), rows, proposal)
        result = StepResult.read(sampled, own, logits, rows, verified)
        self._speculation.verified(step.plan)
        return result

    def _preempt_all(self) -> list[Event]:
        """After out-of-memory: restart the running sequences, half as many at once. A single one fails."""
        ran, lanes = self._scheduler.preempt_all()
        for sequence in ran:
            self._forget(sequence.slot)
            sequence.restart(text_stream(sequence.request, self._tokenizer, self.eos_ids))
        for lane in lanes:
            self._runner.release(lane)
        self._companions.trim()
        self._runner.free_cache()
        self._speculation.trim()
        if len(ran) > 1:
            self.notices.append(
                f"The memory is full with {len(ran)} samples at once; from now on {self.limit} run."
            )
            return []
        events = []
        full = GenerationError("The memory is full, though nothing else runs.")
        for sequence in ran:
            self._scheduler.waiting.remove(sequence)
            events += sequence.drain(time.monotonic(), full)
        return events

    def _rows(self, sampled: SampledSequences) -> Rows:
        """Build the rows of the step; the stages prepare them before the model runs."""
        slots, drafts = [sequence.slot for sequence, _ in sampled], [run for _, run in sampled]
        return self.pipeline.prepare(Rows.build(self._history, slots, drafts))

    def _admit(self) -> list[Event]:
        """Give slots to waiting sequences. Return error events of those that a stage refuses now."""
        events: list[Event] = []
        for sequence in self._scheduler.admit():
            request, slot = sequence.request, sequence.slot
            sequence.started = time.monotonic()
            if sequence.num_computed_tokens:
                self._runner.truncate(slot, sequence.num_computed_tokens)
            else:
                self._runner.release(slot)  # another sequence's tokens
            self._history.admit(slot, request.prompt_ids, seed=signed(sequence.seed))
            try:
                self.pipeline.admit(slot, request.chain, admission(request, sequence.context))
            except ProcessorsError as error:
                events += sequence.drain(sequence.started, error)
                self._release(sequence)
                continue
            self._sampler.admit(slot, request.draw)
            self._verifier.admit(slot, request.verification)
            self._speculation.admit(sequence)
            self._companions.admit(sequence)
        return events

    def _process_output(self, result: StepResult) -> list[Event]:
        """Append the tokens of a step to their sequences, commit them, and return the events."""
        events: list[Event] = []
        kept: list[tuple[Sequence, Taken]] = []
        row, now = 0, time.monotonic()
        each = zip(result.sampled, result.tokens, result.logprobs, strict=True)
        for (sequence, run), tokens, logprobs in each:
            self._speculation.observe(sequence, proposed=len(run), accepted=len(tokens) - 1)
            valid = [token for token in tokens if token >= 0]
            followed = self.pipeline.preview(sequence.slot, valid)
            taken, error = sequence.take(valid, followed, now=now)
            sequence.logprob += sum(logprobs[: len(taken.ids)])
            if sequence.cut:
                sequence.end_cut(self._endings.completion(sequence, taken.ids))
            if error is None and sequence.finish is None and len(valid) < len(tokens):
                error = self.pipeline.explain_failure(result.logits, result.rows, row + len(valid))
            events += sequence.drain(now, error)
            if sequence.finish is not None or error is not None:
                self._release(sequence)
            else:
                kept.append((sequence, taken))
            row += 1 + len(run)
        self._commit(kept)
        self._speculation.conclude()
        return events

    def _commit(self, kept: list[tuple[Sequence, Taken]]) -> None:
        """Commit the tokens of continuing sequences, and truncate KV lanes behind rejected drafts."""
        slots = [sequence.slot for sequence, _ in kept]
        self._history.append(slots, [taken.ids for _, taken in kept], [taken.forced for _, taken in kept])
        for sequence, taken in kept:
            self.pipeline.commit(sequence.slot, taken.ids)
            if self._scheduler.rewind(sequence):
                self._runner.release(sequence.slot)
            elif sequence.num_computed_tokens > len(sequence) - 1:  # rejected drafts
                sequence.num_computed_tokens = len(sequence) - 1
                self._runner.truncate(sequence.slot, sequence.num_computed_tokens)

    def _release(self, sequence: Sequence) -> None:
        for lane in self._scheduler.release(sequence):
            self._runner.release(lane)
        self._forget(sequence.slot)

    def _forget(self, slot: int) -> None:
        """Remove all state of the slot's request except its KV lane."""
        self._speculation.release(slot)
        self._companions.release(slot)
        self.pipeline.release(slot)
        self._history.release(slot)
