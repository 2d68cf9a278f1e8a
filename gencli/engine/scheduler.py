"""Which sequences run, and what each of them feeds in the next step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from gencli.core.step import Feed, StepPlan, rope_factors
from gencli.engine.prefix_cache import Fork, PrefixCache
from gencli.engine.queue_order import WINDOW, LookAhead
from gencli.engine.samples import Pending, Samples
from gencli.engine.sequence import Sequence
from gencli.engine.slots import Slots
from gencli.engine.token_budget import fitting, lanes_of, span_cost, step_limit

__all__ = ["Choosing", "Propose", "Scheduler", "Step"]

Choosing = list[tuple[Sequence, tuple[int, ...]]]  # sequences with a token to choose, and their drafts
_Span = tuple[Sequence, int]  # a sequence, and up to which token it is fed
Propose = Callable[[list[Sequence]], dict[int, tuple[int, ...]]]  # drafts by slot


@dataclass(frozen=True, slots=True)
class Step:
    """The feeds of a step and the sequence behind each of them."""

    plan: StepPlan
    sequences: tuple[Sequence, ...]
    forks: tuple[Fork, ...]

    @property
    def choosing(self) -> Choosing:
        """The sequences whose next token this step decides, with their drafts."""
        pairs = zip(self.sequences, self.plan.feeds, strict=True)
        return [(sequence, feed.drafts) for sequence, feed in pairs if feed.wanted]


class Scheduler:
    """Decides who runs. A sequence keeps its slot, which is also its KV lane, until it is done.

    What slots hold without a sequence is for `Slots`, which prompts are read once for several sequences
    for `PrefixCache`, who may overtake whom for `LookAhead`. `limit` is how many sequences run at once: as
    many as there are slots, until the memory said no.

    Running sequences decode in every step; what is left of the token budget goes to prompt chunks, so
    that a long prompt does not stall its neighbours, and to drafts. No step feeds more than `step_tokens`
    but for one token a sequence, and up to 64 that its companion lacks of a prompt when it first chooses:
    drafts are cut, or where that would change a text, chunks are smaller and sequences wait for a step.
    `rope_switches` are those of the model's spec.
    """

    def __init__(
        self,
        *,
        max_batch: int,
        step_tokens: int | None,
        can_rollback: bool = True,
        share_prefixes: bool = True,
        rope_switches: tuple[int, ...] = (),
    ) -> None:
        self._rope_switches = rope_switches
        self.limit = max_batch
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.pending = Pending()  # behind what waits
        self._slots = Slots(max_batch, can_rollback=can_rollback, stays_warm=can_rollback and share_prefixes)
        self._sharing = PrefixCache(
            self._slots.warm, can_rollback=can_rollback, is_on=share_prefixes, rope_switches=rope_switches
        )
        self.step_tokens = step_limit(step_tokens, max_batch)
        self._welcome = 0  # tokens that drafts of the last step would have taken, uncut
        self._num_added = 0

    def add(self, samples: Samples) -> None:
        """Let the samples of a request wait for slots; they are made when their turn is near."""
        self.pending.add(samples)

    @property
    def has_work(self) -> bool:
        """Whether anything has not ended."""
        return bool(self.running or self.waiting or self.pending)

    def everything(self) -> list[Sequence]:
        """All sequences that have not ended, running or waiting, of those that were made."""
        return [*self.running, *self.waiting]

    def _fill(self) -> None:
        """Make the samples that may be next."""
        while not self.waiting or self._num_added < self.waiting[0].number + WINDOW:
            if (sequence := self.pending.take()) is None:
                return
            sequence.number = self._num_added
            self._num_added += 1
            self.waiting.append(sequence)

    def admit(self) -> list[Sequence]:
        """Give slots to waiting sequences.

        The first `fed` tokens in the lane are the sequence's own, and all else there is to be forgotten.
        """
        self._fill()
        if not self._has_room():
            return []
        admitted = []
        ahead = LookAhead(self.waiting, lambda prompt: self._sharing.best(prompt).length)
        while self._has_room():
            sequence = ahead.take()
            self._fill()
            sequence.rope = self._rope(sequence)
            shared = self._sharing.best(sequence.prompt).length
            sequence.slot, sequence.fed = self._slots.take(sequence, at_least=shared)
            sequence.cached = sequence.fed
            if sequence.fed:
                self._sharing.begin(sequence)
            self.running.append(sequence)
            admitted.append(sequence)
        return admitted

    def next_to_run(self) -> Iterator[Sequence]:
        """Sequences that run, and those for which there is room as well."""
        self._fill()
        room = max(0, self.limit - len(self.running))
        return chain(self.running, islice(self.waiting, room))

    def _has_room(self) -> bool:
        return bool(self.waiting and len(self.running) < self.limit and self._slots)

    def release(self, sequence: Sequence) -> list[int]:
        """Take the sequence's slot back; the lanes that are to be emptied."""
        self.running.remove(sequence)
        self._sharing.leave(sequence)
        return self._slots.put(sequence)

    def rewind(self, sequence: Sequence) -> bool:
        """Whether the sequence grew beyond a rope switch: its lane is to be emptied, and is read anew."""
        if sequence.rope == self._rope(sequence):
            return False
        self._sharing.leave(sequence)
        sequence.rope, sequence.fed = self._rope(sequence), 0
        self._sharing.begin(sequence)
        return True

    def _rope(self, sequence: Sequence) -> int:
        return rope_factors(len(sequence), self._rope_switches)

    def preempt_all(self) -> tuple[list[Sequence], list[int]]:
        """After the memory was full: half of what runs becomes the limit, and all of it waits again, first.

        Returns what ran, each still with its slot, and all slots whose lanes are to be emptied.
        """
        if len(self.running) > 1:
            self.limit = len(self.running) // 2
        retreating, self.running = sorted(self.running, key=lambda sequence: sequence.number), []
        for sequence in retreating:
            self._sharing.leave(sequence)
        freed = self._slots.clear([sequence.slot for sequence in retreating])
        self.waiting.extendleft(reversed(retreating))
        return retreating, freed

    def plan(
        self, propose: Propose = lambda sequences: {}, is_held: Callable[[Sequence], bool] = lambda s: False
    ) -> Step:
        """The next step: prompt copies, then decoding, then prompt chunks while the budget lasts.

        `propose` is asked once, for the sequences whose next token this step decides. Those that are held
        read no further than to their last token but one.
        """
        forks = self._sharing.forks(self.running)
        spans = self._decoding(is_held)
        left, least = self._left(spans), self.step_tokens // 4
        spans += self._chunks(max(left - self._welcome, min(left, least), 1), is_held)
        choosing = [sequence for sequence, end in spans if end == len(sequence)]
        drafts = self._cut(propose(choosing), choosing, self._left(spans))
        feeds = tuple(_feed(sequence, end, drafts.get(sequence.slot, ())) for sequence, end in spans)
        return Step(StepPlan(feeds), tuple(sequence for sequence, _ in spans), forks)

    def _left(self, spans: list[_Span]) -> int:
        return self.step_tokens - sum(span_cost(sequence, end) for sequence, end in spans)

    def _decoding(self, is_held: Callable[[Sequence], bool]) -> list[_Span]:
        """Sequences that decode in this step.

        Those whose drafts must not be cut take turns where they do not all fit: that changes no text.
        """
        able = [s for s in self.running if len(s) - s.fed == 1 and not is_held(s)]
        spans = [(s, len(s)) for s in able if not s.request.drafts_decide]
        left, late = self._left(spans), list[Sequence]()
        if len(able) < len(self.running):
            left -= self.step_tokens // 4  # others read
        for number, sequence in enumerate(s for s in able if s.request.drafts_decide):
            cost = span_cost(sequence, len(sequence))
            if number and cost > left:
                late.append(sequence)
            else:
                spans.append((sequence, len(sequence)))
                left -= cost
        if late:
            self.running.sort(key=lambda sequence: sequence not in late)
        return spans

    def _chunks(self, budget: int, is_held: Callable[[Sequence], bool]) -> Iterator[_Span]:
        """Sequences that read their prompt, and how far they read in this step."""
        if any(map(is_held, self.running)):
            budget = max(budget - self.step_tokens // 4, 1)  # for what they wait for
        for sequence in self.running:
            last = len(sequence) - is_held(sequence)
            start, end = sequence.fed, min(self._sharing.prefill_end(sequence), last)
            if budget < 1 or start == end or len(sequence) - start == 1:
                continue
            end = min(end, start + budget)
            if span_cost(sequence, end) > budget:  # its drafts come in the next step
                end -= 1
            budget -= span_cost(sequence, end)
            yield sequence, end

    def _cut(
        self, drafts: dict[int, tuple[int, ...]], choosing: list[Sequence], room: int
    ) -> dict[int, tuple[int, ...]]:
        """The drafts that are fed: those that decide a text as they are, others as far as there is room."""
        lanes = {s.slot: lanes_of(s.request) for s in choosing if not s.request.drafts_decide}
        free = {slot: run for slot, run in drafts.items() if slot in lanes}
        self._welcome = sum(lanes[slot] * len(run) for slot, run in free.items())
        return drafts | fitting(free, lanes, room)


def _feed(sequence: Sequence, end: int, drafts: tuple[int, ...]) -> Feed:
    """What is fed up to this token; drafts come behind the last one only."""
    wanted = 1 + len(drafts) if end == len(sequence) else 0
    tokens = sequence.tokens(sequence.fed, end) + drafts
    return Feed(sequence.slot, sequence.fed, tokens, wanted, text_length=0 if wanted else len(sequence))
