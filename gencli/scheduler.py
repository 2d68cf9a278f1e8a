"""Which sequences run, and what each of them feeds in the next step."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gencli.plan import Feed, StepPlan
from gencli.sequence import Sequence

__all__ = ["Choosing", "Fork", "Propose", "Scheduler", "Step"]

Choosing = list[tuple[Sequence, tuple[int, ...]]]  # sequences with a token to choose, and their drafts
Propose = Callable[[list[Sequence]], dict[int, tuple[int, ...]]]  # drafts by slot


@dataclass(frozen=True, slots=True)
class Fork:
    """Copy a lane's first `length` tokens to another lane before the step."""

    source: int
    target: int
    length: int


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


@dataclass(frozen=True, slots=True)
class _Parked:
    """A session's lane between two requests: it holds `held` tokens, which begin with `tokens`."""

    slot: int
    tokens: tuple[int, ...]
    held: int


class Scheduler:
    """Owns slots and queue. A sequence keeps its slot, which is also its KV lane, until it is done.

    The lane of a session is parked then, so that the session's next request need not read again what
    both have in common. Parked lanes are taken, the oldest first, when a sequence finds no free slot.
    `limit` is how many sequences run at once: as many as there are slots, until the memory said no.

    Running sequences decode in every step; what is left of the token budget goes to prompt chunks, so
    that a long prompt does not stall its neighbours.
    """

    def __init__(self, *, max_batch: int, step_tokens: int, can_rollback: bool = True) -> None:
        self.limit = max_batch
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self._free = list(range(max_batch))
        self._parked: dict[str, _Parked] = {}  # by session, the oldest first
        self._step_tokens = step_tokens
        self._can_rollback = can_rollback

    def everything(self) -> list[Sequence]:
        """All that has not ended, running or waiting."""
        return [*self.running, *self.waiting]

    def admit(self) -> list[Sequence]:
        """Give slots to waiting sequences in their order: their session's, a free or a parked one.

        The first `fed` tokens in the lane are the sequence's own, and all else there is to be forgotten.
        """
        admitted = []
        while self.waiting and len(self.running) < self.limit and (self._free or self._parked):
            sequence = self.waiting.popleft()
            self._place(sequence)
            self.running.append(sequence)
            admitted.append(sequence)
        return admitted

    def release(self, sequence: Sequence) -> list[int]:
        """Take the sequence's slot back, or park it for its session; the lanes that are to be emptied."""
        self.running.remove(sequence)
        freed, session = [sequence.slot], sequence.request.session
        if session:
            freed = [parked.slot] if (parked := self._parked.pop(session, None)) else []
            # Beyond the last token but one there may be rejected drafts.
            tokens = sequence.tokens(0, min(sequence.fed, len(sequence) - 1))
            self._parked[session] = _Parked(sequence.slot, tokens, sequence.fed)
        for slot in freed:
            heapq.heappush(self._free, slot)
        return freed

    def retreat(self) -> tuple[list[Sequence], list[int]]:
        """After the memory was full: half of what runs becomes the limit, and all of it waits again, first.

        Returns what ran, each still with its slot, and all slots whose lanes are to be emptied.
        """
        if len(self.running) > 1:
            self.limit = len(self.running) // 2
        retreating, self.running = self.running, []
        freed = [s.slot for s in retreating] + [parked.slot for parked in self._parked.values()]
        self._parked.clear()
        for slot in freed:
            heapq.heappush(self._free, slot)
        self.waiting.extendleft(reversed(retreating))
        return retreating, freed

    def _place(self, sequence: Sequence) -> None:
        parked = self._parked.pop(sequence.request.session, None)
        if parked is not None:
            sequence.slot, sequence.fed = parked.slot, self._reusable(parked, sequence.prompt)
            sequence.cached = sequence.fed
        elif self._free:
            sequence.slot = heapq.heappop(self._free)
        else:
            sequence.slot = self._parked.pop(next(iter(self._parked))).slot

    def _reusable(self, parked: _Parked, prompt: tuple[int, ...]) -> int:
        """How many tokens of the lane the prompt begins with, short of its last one, which is always fed."""
        pairs = zip(parked.tokens, prompt[:-1], strict=False)
        same = next((place for place, (a, b) in enumerate(pairs) if a != b), None)
        kept = min(len(parked.tokens), len(prompt) - 1) if same is None else same
        return kept if self._can_rollback or kept == parked.held else 0

    def plan(
        self, propose: Propose = lambda sequences: {}, is_held: Callable[[Sequence], bool] = lambda s: False
    ) -> Step:
        """The next step: prompt copies, then decoding, then prompt chunks while the budget lasts.

        `propose` is asked once, for the sequences whose next token this step decides. Those that are held
        read no further than to their last token but one.
        """
        forks = self._fork_prompts()
        spans = [(s, len(s)) for s in self.running if len(s) - s.fed == 1 and not is_held(s)]
        budget = self._step_tokens - len(spans)
        spans += self._chunks(max(budget, self._step_tokens // 4, 1), is_held)
        drafts = propose([sequence for sequence, end in spans if end == len(sequence)])
        feeds = tuple(_feed(sequence, end, drafts.get(sequence.slot, ())) for sequence, end in spans)
        return Step(StepPlan(feeds), tuple(sequence for sequence, _ in spans), forks)

    def _chunks(self, budget: int, is_held: Callable[[Sequence], bool]) -> Iterator[tuple[Sequence, int]]:
        """Sequences that read their prompt, and how far they read in this step."""
        for sequence in self.running:
            start, end = sequence.fed, min(self._prefill_end(sequence), len(sequence) - is_held(sequence))
            if budget < 1 or start == end or len(sequence) - start == 1:
                continue
            end = min(end, start + budget)
            budget -= end - start
            yield sequence, end

    def _prefill_end(self, sequence: Sequence) -> int:
        """How far the prompt may be fed now.

        The samples of one request share the prompt's prefill: the one that is furthest feeds all of the
        prompt but its last token, the others wait for a copy, then each feeds the last token itself.
        """
        if sequence.request.n == 1:
            return len(sequence)
        shared = len(sequence.prompt) - 1
        lagging = [other for other in self._siblings(sequence) if other.fed < shared]
        feeds = lagging and max(lagging, key=lambda other: other.fed) is sequence
        return shared if feeds else sequence.fed

    def _siblings(self, sequence: Sequence) -> list[Sequence]:
        return [other for other in self.running if other.request is sequence.request]

    def _fork_prompts(self) -> tuple[Fork, ...]:
        forks = []
        for sequence in self.running:
            shared = len(sequence.prompt) - 1
            if sequence.request.n == 1 or sequence.fed or shared == 0:
                continue
            donor = next((s for s in self._siblings(sequence) if self._holds(s, shared)), None)
            if donor is not None:
                forks.append(Fork(donor.slot, sequence.slot, shared))
                sequence.fed = shared
        return tuple(forks)

    def _holds(self, sequence: Sequence, shared: int) -> bool:
        return sequence.fed == shared or (self._can_rollback and sequence.fed > shared)


def _feed(sequence: Sequence, end: int, drafts: tuple[int, ...]) -> Feed:
    """What is fed up to this token; drafts come behind the last one only."""
    wanted = 1 + len(drafts) if end == len(sequence) else 0
    return Feed(sequence.slot, sequence.fed, sequence.tokens(sequence.fed, end) + drafts, wanted)
