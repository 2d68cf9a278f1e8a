"""The loop of beam search: each step feeds every beam of every search that runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import cast

import torch

from gencli.beams.candidates import Ranked, log_probabilities, ranked
from gencli.beams.results import chosen_events, interrupted
from gencli.beams.search import Child, Search
from gencli.beams.slots import BeamSlots
from gencli.core.events import Error, Event, Finish
from gencli.core.request import Request
from gencli.core.step import Feed, StepPlan
from gencli.engine.admission import admission, text_stream
from gencli.engine.sequence import Sequence as Beam
from gencli.engine.sequence import reading
from gencli.errors import GencliError, GenerationError, is_out_of_memory
from gencli.models.base import ModelRunner
from gencli.text.tokenizer import Tokenizer
from processors.errors import ProcessorsError
from processors.pipeline import Pipeline
from processors.rows import Rows

__all__ = ["BeamLoop"]


class BeamLoop:
    """Runs searches, as many at once as there are slots for their beams; the others wait.

    The slots, 0 to num_slots - 1, are the loop's own from the beginning of `run` to its end. A prompt is
    read once, in chunks of `step_tokens`; its beam is then forked.
    """

    def __init__(
        self,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        pipeline: Pipeline,
        *,
        eos_ids: tuple[int, ...],
        num_slots: int,
        step_tokens: int = 512,
    ) -> None:
        self._runner, self._tokenizer, self._pipeline = runner, tokenizer, pipeline
        self._eos_ids, self._step_tokens = eos_ids, step_tokens
        self._slots = BeamSlots(runner, pipeline, num_slots)
        self._waiting: deque[Search] = deque()
        self._running: list[Search] = []
        self._interrupted = False
        self.limit = num_slots  # beams that run at once
        self.notices: list[str] = []

    @property
    def has_work(self) -> bool:
        """Whether a search runs or waits."""
        return bool(self._waiting or self._running)

    @property
    def occupancy(self) -> float:
        """What runs, of what may run at once."""
        return sum(len(search.running) for search in self._running) / self.limit

    def submit(self, request: Request) -> None:
        """Queue a request, which was found fit to run."""
        self._waiting.append(self._search(request, time.monotonic()))

    def _search(self, request: Request, submitted: float) -> Search:
        stream = text_stream(request, self._tokenizer, self._eos_ids)
        context = self._runner.spec.context
        root = Beam(request, 0, request.seed, stream, submitted, context=context)
        most = admission(request, context).max_tokens or 1
        return Search(root, most=most, num_ends=len({*self._eos_ids, *request.stops.ids}))

    def interrupt(self) -> None:
        """End all that is open at the next step."""
        self._interrupted = True

    def run(self) -> Iterator[Event]:
        """Search until every request has its texts. More may be submitted between two events."""
        while self.has_work:
            if self._interrupted:
                yield from self._end([*self._running, *self._waiting], "interrupted")
            else:
                first = self._running or [*self._waiting][:1]
                yield from reading(search.running[0] for search in first)
                yield from self._step()
        self._interrupted = False

    def end_waiting(self) -> list[Event]:
        """End what has not begun; what runs goes on."""
        return self._end([*self._waiting], "interrupted")

    @torch.inference_mode()
    def _step(self) -> list[Event]:
        now = time.monotonic()
        open_now = [*self._running, *self._waiting]
        late = [s for s in open_now if s.request.limits.is_over(now - s.running[0].submitted)]
        events = self._end(late, "length", "max_time")
        try:
            self._admit(events)
            self._advance(events)
            return events
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        return events + self._preempt_all()  # out of the block, where no traceback holds tensors any more

    def _admit(self, events: list[Event]) -> None:
        """Begin searches in their order, while there are slots for the beams; adds to the events."""
        while self._waiting:
            search = self._waiting[0]
            used = sum(len(other.slots) for other in self._running)
            if search.width > self._slots.num_free or (self._running and used + search.width > self.limit):
                return
            try:
                slots = self._slots.take(search.request, search.width)
            except ProcessorsError as error:  # a stage refuses now what it took when it was submitted
                events += self._fail(search, error)
                continue
            self._running.append(self._waiting.popleft())
            search.begin(slots, time.monotonic())

    def _advance(self, events: list[Event]) -> None:
        """Feed the model and take the searches whose prompts are read one step on; adds to the events."""
        fed = [(beam, feed) for search in self._running for beam, feed in self._feeds(search)]
        if not fed:
            return
        slots = [feed.lane for _, feed in fed if feed.wanted]
        rows = self._pipeline.prepare(Rows.build(self._slots.history, slots)) if slots else None
        logits = self._runner.forward(StepPlan(tuple(feed for _, feed in fed)))
        for beam, feed in fed:
            beam.fed += len(feed.tokens)
        if rows is None:
            return
        logits = logits.to(self._slots.history.device)
        logprobs = log_probabilities(self._pipeline(logits, rows))
        searches = [search for search in self._running if search.running[0].slot in slots]
        sums, at_first = [search.sums for search in searches], [search.at_first for search in searches]
        place = 0
        for search, found in zip(searches, ranked(logprobs, sums, at_first), strict=True):
            size = len(search.running)
            if found.faulty or (found.is_empty and not search.finished.entries):
                at = place + (found.faulty or (0,))[0]
                events += self._fail(search, self._pipeline.explain_failure(logits, rows, at))
            else:
                events += self._decide(search, found)
            place += size

    def _feeds(self, search: Search) -> Iterator[tuple[Beam, Feed]]:
        """What each beam feeds: its newest token, or the next chunk of the prompt."""
        for beam in search.running:
            end = min(len(beam), beam.fed + self._step_tokens)
            wanted = int(end == len(beam))
            text_length = 0 if wanted else len(beam)
            yield beam, Feed(beam.slot, beam.fed, beam.tokens(beam.fed, end), wanted, text_length)

    def _decide(self, search: Search, candidates: Ranked) -> list[Event]:
        """One search's step, from candidates to beams in their slots; its events if it is over."""
        try:
            children = search.advance(candidates, self._extend)
        except GencliError as error:  # a stop pattern that takes too long
            return self._fail(search, error)
        if search.is_over:
            return self._results(search)
        self._slots.place(children, search.slots)
        if len(search.running[0]) - 1 in self._runner.spec.rope_switches:
            for beam in search.running:  # all are as long: each is read anew
                self._runner.release(beam.slot)
                beam.fed = 0
        return []

    def _extend(self, parent: Beam, token: int) -> Child:
        """The beam with one more token, and with whatever that brings to an end."""
        beam = parent.fork()
        followed = self._pipeline.preview(parent.slot, [token])
        taken, error = beam.take([token], followed, now=time.monotonic())
        if error is not None:
            raise error
        if beam.cut:
            is_open = beam.request.finish_open and beam.document == "open"
            beam.end_cut(self._pipeline.closing(parent.slot, taken.ids) if is_open else ())
        return Child(parent.slot, beam, taken)

    def _release(self, search: Search) -> None:
        if search in self._waiting:
            self._waiting.remove(search)
        else:
            self._running.remove(search)
            self._slots.give_back(search.slots)

    def _fail(self, search: Search, error: Exception) -> list[Event]:
        self._release(search)
        request = search.request
        return [Error(request.id, j, type(error).__name__, str(error), "") for j in range(request.n)]

    def _results(self, search: Search) -> list[Event]:
        """The best texts of a search that is over."""
        self._release(search)
        now, request = time.monotonic(), search.request
        scored = [
            (score, beam.logprob, cast(Finish, beam.drain(now)[-1]), tuple(beam.output))
            for score, beam in search.finished.entries
        ]
        scored.sort(key=lambda entry: (len(entry[3]), entry[3]))  # of equal scores the shorter text is first
        return chosen_events(request.id, request.n, scored)

    def _end(self, searches: list[Search], reason: str, matched: str | None = None) -> list[Event]:
        """End searches from outside."""
        events = list[Event]()
        for search in searches:
            search.close(reason, matched)
            events += self._results(search)
        return interrupted(events) if reason == "interrupted" else events

    def _preempt_all(self) -> list[Event]:
        """After the memory was full: what ran begins again later, fewer at once. What runs alone fails."""
        searches = [*self._running]
        if len(searches) == 1:
            full = GenerationError("The memory is full, though nothing else runs.")
            return self._fail(searches[0], full)
        for search in searches:
            self._release(search)
        self._runner.trim()
        self.limit = sum(search.width for search in searches) // 2
        again = [self._search(s.request, s.running[0].submitted) for s in reversed(searches)]
        self._waiting.extendleft(again)
        self.notices.append(f"The memory is full; from now on {self.limit} beams run at once.")
        return []
