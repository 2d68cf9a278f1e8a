"""The generate loop: requests in, events out, one step after the other."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial

import torch

from gencli.core.events import Event
from gencli.core.request import Request
from gencli.engine.admission import admission, check_request, effective, text_stream
from gencli.engine.companions import Companions
from gencli.engine.samples import Samples
from gencli.engine.scheduler import Choosing, Scheduler
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
    """Runs requests together, continuously batched, on one model.

    `max_batch` sequences run at once, and a step feeds at most `step_tokens` (None: see step_limit), but for
    one a sequence. Requests that wait or join change nothing in the text of the others. `clock` times drafts.
    Guided requests need a second lane, from `max_batch` on; `amateurs` are the models that contrasts name.
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
        # Apple's GPU has no float64, which the draws are made of: the chain runs beside it on the CPU.
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
        every = make_engine_drafter(drafter, self.pipeline, self._sampler, self._history)
        self._speculation = Speculation(every, self.pipeline, self._registry, spec, clock=clock)
        self.notices = self.pipeline.notices  # one list: both add to it
        self.notices += every.notices
        self._spare_slot = max_batch  # where requests are tried on before they wait
        self._interrupted = False
        self._cancelled: deque[str] = deque()  # ids of requests, until the next step
        self._changing = threading.RLock()  # held by a step, and by what changes the queue
        self.occupancy = 0.0  # in the last step: what ran, of what may run at once

    def effective(self, request: Request) -> Request:
        """The request as it will run."""
        known, width = self._tokenizer.vocab_size, self._runner.spec.vocab_size
        return effective(request, known=known, width=width, registry=self._registry)

    def submit(self, request: Request) -> None:
        """Queue a request; from another thread, it waits for the step that runs.

        Raises UsageError or ProcessorsError for a request that cannot run; nothing has changed then.
        """
        with self._changing:
            self._submit(request)

    @torch.inference_mode()
    def _submit(self, request: Request) -> None:
        request, spec = self.effective(request), self._runner.spec
        check_request(request, spec)
        self._companions.check(request)
        context = self._companions.context(request)
        self.pipeline.admit(self._spare_slot, request.chain, admission(request, context))
        self.pipeline.release(self._spare_slot)
        self._speculation.check(request)
        self.notices += self._speculation.guard(request)
        now = time.monotonic()
        self._scheduler.add(Samples(request, partial(self._sample, request, context, now), submitted=now))

    def _sample(self, request: Request, context: int, submitted: float, sample: int) -> Sequence:
        stream = text_stream(request, self._tokenizer, self.eos_ids)
        seed = derive(request.seed, sample)
        return Sequence(request, sample, seed, stream, submitted=submitted, context=context)

    def run(self) -> Iterator[Event]:
        """Generate until every submitted request has ended. More may be submitted between two events."""
        while self._scheduler.has_work:
            if self._interrupted:
                yield from self._end(self._scheduler.everything(), "interrupted")
                yield from self._scheduler.pending.end("interrupted")
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
            events = [*self._end_cancelled(), *self._scheduler.pending.end_late()]
            if not self._scheduler.has_work:
                return events
            return [*events, *reading(self._scheduler.next_to_run()), *self._step()]

    def cancel(self, request_id: str) -> None:
        """End all samples of a request at the next step, with their texts so far (reason `interrupted`).

        Safe from another thread. An id that is not known, or has ended, changes nothing. The texts of other
        requests stay the same.
        """
        self._cancelled.append(request_id)

    def _end_cancelled(self) -> Iterator[Event]:
        while self._cancelled:
            request_id = self._cancelled.popleft()
            mine = [one for one in self._scheduler.everything() if one.request.id == request_id]
            yield from self._end(mine, "interrupted")
            yield from self._scheduler.pending.end("interrupted", request_id)

    def interrupt(self) -> None:
        """End all that is open, with its text so far, at the next step. Safe in a signal handler."""
        self._interrupted = True

    def end_waiting(self) -> Iterator[Event]:
        """End what has not begun; what runs goes on."""
        yield from self._end(list(self._scheduler.waiting), "interrupted")
        yield from self._scheduler.pending.end("interrupted")

    @property
    def limit(self) -> int:
        """How many samples run at once: `max_batch`, or what the memory was found to hold."""
        return self._scheduler.limit

    @torch.inference_mode()
    def _step(self) -> list[Event]:
        events, chosen, is_full = self._end_late(), None, False
        try:
            events += self._admit()
            chosen = self._choose()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            is_full = True
        if is_full:  # out of the block, where no traceback holds tensors any more
            return events + self._preempt_all()
        return events + (self._decide(chosen) if chosen else [])

    def _choose(self) -> StepResult | None:
        """Feed the model and choose tokens; nothing is committed, and no event told, before this is done."""
        self.occupancy = len(self._scheduler.running) / self.limit
        step = self._scheduler.plan(self._speculation.propose, self._companions.is_behind)
        for fork in step.forks:
            self._runner.fork(fork.source, fork.target)
            self._runner.keep(fork.target, fork.length)
        pairing = self._companions.pair(step)
        if not pairing.has_feeds:
            return None
        choosing = step.choosing
        rows = self._rows(choosing)
        own, companions = pairing.forward()
        logits = pairing.guided(own, companions).to(self._history.device)
        if not choosing:
            return None
        proposal = self._speculation.proposal(choosing)
        verified = self._verifier(self.pipeline(logits, rows), rows, proposal)
        chosen = StepResult.read(choosing, own, logits, rows, verified)
        self._speculation.verified(step.plan)
        return chosen

    def _preempt_all(self) -> list[Event]:
        """After the memory was full: what ran begins again later, fewer at once. What runs alone fails."""
        ran, lanes = self._scheduler.preempt_all()
        for sequence in ran:
            self._forget(sequence.slot)
            sequence.restart(text_stream(sequence.request, self._tokenizer, self.eos_ids))
        for lane in lanes:
            self._runner.release(lane)
        self._companions.trim()
        self._runner.trim()
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

    def _rows(self, choosing: Choosing) -> Rows:
        """The rows of the step, and all that the stages can do before the model runs."""
        slots, drafts = [sequence.slot for sequence, _ in choosing], [run for _, run in choosing]
        return self.pipeline.prepare(Rows.build(self._history, slots, drafts))

    def _admit(self) -> list[Event]:
        """Give slots to what waits; events for what a stage refuses now, though it took it when submitted."""
        events: list[Event] = []
        for sequence in self._scheduler.admit():
            request, slot = sequence.request, sequence.slot
            sequence.started = time.monotonic()
            if sequence.fed:
                self._runner.keep(slot, sequence.fed)
            else:
                self._runner.release(slot)  # of what another sequence left there
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

    def _decide(self, chosen: StepResult) -> list[Event]:
        """From a step's choices to committed tokens and events."""
        events: list[Event] = []
        kept: list[tuple[Sequence, Taken]] = []
        row, now = 0, time.monotonic()
        each = zip(chosen.choosing, chosen.tokens, chosen.logprobs, strict=True)
        for (sequence, run), tokens, logprobs in each:
            self._speculation.observe(sequence, proposed=len(run), accepted=len(tokens) - 1)
            good = [token for token in tokens if token >= 0]
            followed = self.pipeline.preview(sequence.slot, good)
            taken, error = sequence.take(good, followed, now=now)
            sequence.logprob += sum(logprobs[: len(taken.ids)])
            if sequence.cut:
                sequence.end_cut(self._closing(sequence, taken.ids))
            if error is None and sequence.finish is None and len(good) < len(tokens):
                error = self.pipeline.explain_failure(chosen.logits, chosen.rows, row + len(good))
            events += sequence.drain(now, error)
            if sequence.finish is not None or error is not None:
                self._release(sequence)
            else:
                kept.append((sequence, taken))
            row += 1 + len(run)
        self._keep(kept)
        self._speculation.conclude()
        return events

    def _closing(self, sequence: Sequence, tokens: tuple[int, ...] = ()) -> tuple[int, ...]:
        """What completes a cut document behind these tokens, if that is wanted and it is open."""
        is_open = sequence.request.finish_open and sequence.document == "open"
        return self.pipeline.closing(sequence.slot, tokens) if is_open else ()

    def _keep(self, kept: list[tuple[Sequence, Taken]]) -> None:
        """Make the tokens of the sequences that go on part of the committed state."""
        slots = [sequence.slot for sequence, _ in kept]
        self._history.append(slots, [taken.ids for _, taken in kept], [taken.forced for _, taken in kept])
        for sequence, taken in kept:
            self.pipeline.commit(sequence.slot, taken.ids)
            if self._scheduler.rewind(sequence):
                self._runner.release(sequence.slot)
            elif sequence.fed > len(sequence) - 1:  # rejected drafts
                sequence.fed = len(sequence) - 1
                self._runner.keep(sequence.slot, sequence.fed)

    def _release(self, sequence: Sequence) -> None:
        for lane in self._scheduler.release(sequence):
            self._runner.release(lane)
        self._forget(sequence.slot)

    def _forget(self, slot: int) -> None:
        """Nothing but the lane knows of the slot's request any more."""
        self._speculation.release(slot)
        self._companions.release(slot)
        self.pipeline.release(slot)
        self._history.release(slot)

    def _end_late(self) -> list[Event]:
        """End what has run out of its time."""
        now = time.monotonic()
        late = [s for s in self._scheduler.everything() if s.request.limits.is_over(now - s.submitted)]
        return self._end(late, "length", "max_time") if late else []

    @torch.inference_mode()
    def _end(self, sequences: list[Sequence], reason: str, matched: str | None = None) -> list[Event]:
        events = []
        for sequence in sequences:
            if reason == "length" and (closing := self._closing(sequence)):
                sequence.end_cut(closing, matched)
            else:
                sequence.close(reason, matched)
            events += sequence.drain(time.monotonic())
            if sequence.slot >= 0:
                self._release(sequence)
            else:
                self._scheduler.waiting.remove(sequence)
        return events
