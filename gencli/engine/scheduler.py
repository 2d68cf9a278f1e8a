"""The scheduler: which sequences run, and what each feeds in the next step; with the waiting queue (by
priority, then first come, first served, with bounded overtaking), idle slots with the texts that their
KV lanes hold, and the token budget of a step.
"""

from __future__ import annotations

import heapq
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from gencli.core.events import Event, Finish, Reading
from gencli.core.request import Feed, Kind, Prefixes, Request, StepPlan, Tokens, rope_factors, shared_length
from gencli.engine.sequence import Group, PrefixCache, Propose, Sequence, heads, span_feed
from gencli.engine.step import Step
from processors.errors import is_out_of_memory

WINDOW = 64  # limit of sequences that may overtake another one
_GRAIN = 32  # tokens; shared prefixes are compared in multiples of it


class LookAhead:
    """Takes sequences from the queue for the slots that are free now.

    Candidates are the sequences of the first one's priority, submitted less than `window` after it, that fit
    the free slots. So a group that needs many slots is overtaken by fewer than `window` sequences of its
    priority. Their order: 1. longest shared prefix with the KV lanes; 2. prefill length closest to the
    previous sequence's, so that they share forward passes; 3. largest `max_tokens`, so that no long text runs
    alone at the end of a batch; 4. position in the queue. `shared(sequence)` is the number of its prompt's
    tokens in the lanes; it is called once per sequence.
    """

    def __init__(
        self, waiting: deque[Sequence], shared: Callable[[Sequence], int], window: int = WINDOW
    ) -> None:
        self._waiting, self._size = waiting, window
        self._shared = {id(sequence): shared(sequence) for sequence in self._window()}
        self._last_prefill: int | None = None

    def take(self, room: int) -> Sequence | None:
        """Remove and return the next sequence that needs at most `room` slots; None if there is none."""
        able = [(index, s) for index, s in enumerate(self._window()) if s.num_slots <= room]
        if not able:
            return None

        def order(pair: tuple[int, Sequence]) -> tuple[int, int, int]:
            shared, length = self._lengths(pair[1])
            difference = 0 if self._last_prefill is None else abs(length - self._last_prefill)
            return shared // _GRAIN, -difference, pair[1].request.limits.max_tokens

        index, sequence = max(able, key=order)  # the first of equals
        del self._waiting[index]
        _, self._last_prefill = self._lengths(sequence)
        return sequence

    def _window(self) -> Iterator[Sequence]:
        if not self._waiting:
            return iter(())
        end, priority = self._waiting[0].number + self._size, _priority(self._waiting[0])
        return takewhile(lambda other: other.number < end and _priority(other) == priority, self._waiting)

    def _lengths(self, sequence: Sequence) -> tuple[int, int]:
        """Return the number of prompt tokens in the lanes, and of those to prefill."""
        shared = self._shared.get(id(sequence), 0)
        return shared, len(sequence.prompt) - shared


class Samples:
    """Creates the samples of a request one by one, so that memory does not grow with `n`.

    A beam search is created as one sequence, the root of its group.
    """

    def __init__(self, request: Request, make: Callable[[int], Sequence], *, submitted: float) -> None:
        self.request, self.submitted = request, submitted
        self._make, self._next = make, 0
        self._count = request.n if request.beams is None else 1

    def take(self) -> Sequence | None:
        """Create and return the next sample; None after the last."""
        if self._next == self._count:
            return None
        self._next += 1
        return self._make(self._next - 1)

    def end(self, reason: str, matched: str | None = None) -> Iterator[Event]:
        """Yield one Finish for all samples not created yet (see `Finish.more`), with an empty text."""
        if (sequence := self.take()) is None:
            return
        sequence.unit.close(reason, matched)
        ends = sequence.unit.drain(time.monotonic())
        if sequence.group:
            yield from ends
            return
        more, self._next = self._count - self._next, self._count
        yield from (replace(event, more=more) for event in ends if isinstance(event, Finish))


class OomGuard:
    """Keeps in mind that memory has run out, until all sequences restart: `is_full`."""

    def __init__(self) -> None:
        self.is_full = False

    def takes(self, error: Exception) -> bool:
        """Return whether the error says that memory has run out, and then keep that in mind."""
        is_full = is_out_of_memory(error)
        self.is_full |= is_full
        return is_full


_LONG = 64  # prompt tokens; a longer remaining prefill is reported as progress

_Span = tuple[Sequence, int]  # a sequence, and the number of tokens up to which it is fed


class Scheduler:
    """Continuous batching. A sequence keeps its slot, which is also its KV lane, until it ends.

    `Slots` owns the idle slots, `PrefixCache` shares prompt prefixes, `LookAhead` orders the queue. `limit`
    is the number of slots that may be in use: `max_batch`, halved after each out-of-memory. A group takes all
    its slots when it is admitted; one that is wider than the limit runs alone.

    Each step feeds at most `step_tokens` tokens (chunked prefill), in this order:
    - decoding: one token of each running sequence;
    - prompt chunks: the budget left by decoding and drafts; at least a quarter, if decoding leaves that;
    - draft tokens: cut to the rest. If cutting would change a text (`Request.drafts_decide`), chunks shrink
      and sequences take turns instead.
    Three exceptions may exceed the budget: one token per sequence, held tokens, and up to 64 prompt tokens
    that a companion lacks when its sample chooses its first token. `rope_switches` is
    ModelSpec.rope_switches. `score_rows`: limit of prompt positions scored in a step. `may_read`: whether any
    running sequence may have a part of its prompt left.
    """

    def __init__(
        self,
        *,
        max_batch: int,
        step_tokens: int | None,
        can_rollback: bool = True,
        share_prefixes: bool = True,
        rope_switches: tuple[int, ...] = (),
        score_rows: int = 512,
        window: int = WINDOW,
    ) -> None:
        self._window = window
        self.score_rows = score_rows
        self._rope_switches = rope_switches
        self.limit = self._num_slots = max_batch
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()  # by priority
        self.pending = deque[Samples]()  # requests with samples not created yet, by priority
        self._slots = Slots(max_batch, can_rollback=can_rollback, stays_warm=can_rollback and share_prefixes)
        self._prefix_cache = PrefixCache(
            self._slots.warm, can_rollback=can_rollback, is_on=share_prefixes, rope_switches=rope_switches
        )
        self.step_tokens = step_limit(step_tokens, max_batch)
        self._num_drafts_requested = 0  # draft tokens of the last step over all lanes, before cutting
        self._num_added = 0
        self.may_read = False

    def add(self, samples: Samples) -> None:
        insort(self.pending, samples, key=_priority)

    @property
    def has_work(self) -> bool:
        """Whether any sequence has not ended."""
        return bool(self.running or self.waiting or self.pending)

    def everything(self) -> list[Sequence]:
        """Return all sequences that exist and have not ended, running or waiting."""
        return [*self.running, *self.waiting]

    def _fill(self) -> None:
        """Create the samples that may be admitted next: urgent ones, and any that may overtake the first."""
        while self.pending:
            samples, first = self.pending[0], self.waiting[0] if self.waiting else None
            if (
                first is not None
                and self._num_added >= first.number + self._window
                and _priority(samples) >= _priority(first)
            ):
                return
            if (sequence := samples.take()) is None:
                self.pending.popleft()
                continue
            sequence.number = self._num_added
            self._num_added += 1
            insort(self.waiting, sequence, key=_priority)

    def admit(self) -> list[Sequence]:
        """Give slots to waiting sequences.

        The first `num_computed_tokens` tokens of a sequence's lane are valid; the caller truncates the rest.
        """
        self._fill()
        if not self.waiting or not self._room:
            return []
        admitted = []
        ahead = LookAhead(
            self.waiting,
            lambda s: self._prefix_cache.best(s.prompt, salt=s.request.salt).length,
            self._window,
        )
        while (sequence := ahead.take(self._room)) is not None:
            self._fill()
            limit, salt = len(sequence.reusable), sequence.request.salt
            shared = self._prefix_cache.best(sequence.prompt, limit, salt=salt).length
            rope = self._rope(sequence)
            slot, num_cached = self._slots.take(sequence, rope=rope, at_least=shared)
            sequence.place(slot, num_cached, rope)
            if sequence.group:
                sequence.group.slots = slot, *self._slots.reserve(sequence.num_slots - 1)
            if num_cached:
                self._prefix_cache.begin(sequence)
            else:
                self._prefix_cache.waiting[slot] = sequence
            self.running.append(sequence)
            admitted.append(sequence)
        return admitted

    def reading(self) -> list[Event]:
        """Return the prefill progress of sequences with over 64 prompt tokens left, running or next."""
        self._fill()
        near = islice(self.waiting, max(0, self.limit - self.num_used)) if self.waiting else ()
        reading = [s for s in (*self.running, *near) if len(s.prompt) - s.num_computed_tokens > _LONG]
        return [
            Reading(s.request.id, s.sample, s.num_computed_tokens, len(s.prompt))
            for s in (heads(reading) if reading else ())
        ]

    @property
    def num_used(self) -> int:
        """Number of slots in use, those reserved for groups included."""
        return self._num_slots - len(self._slots)

    @property
    def _room(self) -> int:
        """Number of slots that the next sequence may take; a sequence wider than the limit may run alone."""
        idle, used = len(self._slots), self.num_used
        return min(idle, self.limit - used) if used else idle

    def remove(self, unit: Sequence | Group) -> list[int]:
        """Free the slots of a sequence or group, or remove it from the queue.

        Return the lanes that the caller has to empty.
        """
        if not unit.slots:
            self.waiting = deque(sequence for sequence in self.waiting if sequence.unit is not unit)
            return []
        self._stop(unit)
        return self._slots.put(unit) if isinstance(unit, Sequence) else self._slots.free(unit.slots)

    def replace(self, group: Group) -> None:
        """Run the group's present members, which have slots, instead of the former members."""
        index = self._stop(group)
        self.running[index:index] = group.members
        self.may_read = True
        for member in group.members:
            self._prefix_cache.begin(member)

    def _stop(self, unit: Sequence | Group) -> int:
        """Remove a unit from the running sequences; return the index of its first sequence."""
        stopped = [index for index, sequence in enumerate(self.running) if sequence.unit is unit]
        for index in reversed(stopped):
            self._prefix_cache.leave(self.running.pop(index))
        return stopped[0]

    def rewind(self, sequence: Sequence) -> bool:
        """Restart the prefill of a sequence that grew beyond a rope switch; return whether it did.

        The caller then empties the sequence's lane.
        """
        if sequence.rope == self._rope(sequence):
            return False
        self._prefix_cache.leave(sequence)
        sequence.recompute(self._rope(sequence))
        self.may_read = True
        self._prefix_cache.begin(sequence)
        return True

    def _rope(self, sequence: Sequence) -> int:
        return rope_factors(len(sequence), self._rope_switches)

    def preempt_all(self) -> tuple[list[Sequence], list[int], int]:
        """After out-of-memory: move all running sequences to the front of the queue and halve the limit.

        Return these sequences (one of each group), all slots, whose lanes the caller has to empty, and the
        number of lanes that held ended sequences.
        """
        preempted = sorted(heads(self.running), key=lambda sequence: sequence.number)
        if len(preempted) > 1:
            self.limit = self.num_used // 2
        num_idle, self._slots.limit = self._slots.num_idle, min(self.limit, self.num_used)
        for sequence in self.running:
            self._prefix_cache.leave(sequence)
        self.running.clear()
        self.waiting = deque(sorted([*preempted, *self.waiting], key=_priority))
        return preempted, self._slots.clear(), num_idle

    def plan(self, propose: Propose | None, behind: Collection[Sequence] = ()) -> Step:
        """Plan the next step: copies of prompt prefixes, then decoding, then prompt chunks within the budget.

        `propose` (None: no drafts) is called once, with the sequences whose next token this step chooses.
        Sequences that are `behind` do not feed their last token, so no token is chosen for them.
        """
        forks = self._prefix_cache.forks() if self._prefix_cache.waiting else ()
        decoding = [s for s in self.running if s.lag == 1 and s not in behind]
        if bound := [s for s in decoding if s.drafts_decide]:
            decoding = self._in_turns(bound, [s for s in decoding if not s.drafts_decide])
        left, spans = self.step_tokens - sum([s.decode_cost for s in decoding]), list[_Span]()
        self.may_read = len(decoding) < len(self.running)
        if self.may_read:
            spans += self._chunks(left, behind)
            left -= sum([span_cost(*span) for span in spans])
        sampled = decoding + [s for s, end in spans if end == len(s)]
        drafts, self._num_drafts_requested = propose(sampled) if propose else {}, 0
        if drafts:
            drafts = self._cut(drafts, sampled, left)
        pairs = [(s, drafts.get(s.slot, ())) for s in sampled]
        feeds = [
            Feed(s.slot, s.num_computed_tokens, ((s.output or s.prompt)[-1], *run), 1 + len(run))
            for s, run in pairs[: len(decoding)]
        ]
        scoring = [span_feed(s, end, drafts.get(s.slot, ())) for s, end in spans]
        num_scored = sum([feed.num_scored for feed in scoring])
        sequences = (*decoding, *[s for s, _ in spans])
        return Step(StepPlan((*feeds, *scoring), num_scored), sequences, pairs, forks)

    def _in_turns(self, bound: list[Sequence], decoding: list[Sequence]) -> list[Sequence]:
        """Return those that decode in this step, of `decoding` and sequences whose drafts must not be cut.

        If these do not all fit they take turns; the delay changes no text.
        """
        late, left = list[Sequence](), self.step_tokens - sum([s.decode_cost for s in decoding])
        if len(decoding) + len(bound) < len(self.running):
            left -= self.step_tokens // 4  # reserved for prompt chunks
        for number, sequence in enumerate(bound):
            if number and sequence.decode_cost > left:
                late.append(sequence)
            else:
                decoding.append(sequence)
                left -= sequence.decode_cost
        if late:
            self.running.sort(key=lambda sequence: sequence not in late)
        return decoding

    def _chunks(self, left: int, behind: Collection[Sequence]) -> Iterator[_Span]:
        """Yield sequences in prefill and the token up to which each is fed. `left`: budget after decoding.

        The last token of sequences that are `behind` is not fed.
        """
        budget = max(left - self._num_drafts_requested, min(left, self.step_tokens // 4), 1)
        if behind:
            budget = max(budget - self.step_tokens // 4, 1)  # reserved for the companions that they wait for
        rows = self.score_rows
        for sequence in self.running:
            scoring = sequence.scoring
            last = len(sequence) - (sequence in behind or (scoring is not None and scoring.is_only))
            start, end = sequence.num_computed_tokens, min(self._prefix_cache.prefill_end(sequence), last)
            if budget < 1 or start == end or sequence.lag == 1:
                continue
            end = min(end, start + budget)
            if scoring is not None and (count := scoring.num_rows(start, end)):
                if count > rows:
                    end = max(start, scoring.first_read) + rows
                rows -= min(count, rows)
                if start == end:
                    continue
            if span_cost(sequence, end) > budget:  # its last token is fed in the next step, with its drafts
                end -= 1
            budget -= span_cost(sequence, end)
            yield sequence, end

    def _cut(
        self, drafts: dict[int, tuple[int, ...]], sampled: list[Sequence], room: int
    ) -> dict[int, tuple[int, ...]]:
        """Cut the drafts to `room` tokens, except held ones and those of requests with `drafts_decide`.

        Known tokens are cut too, which changes no text.
        """
        bound = {s.slot for s in sampled if s.held or (s.drafts_decide and not s.known)}
        lanes = {s.slot: s.request.num_lanes for s in sampled if s.slot not in bound}
        free = {slot: run for slot, run in drafts.items() if slot in lanes}
        self._num_drafts_requested = sum(lanes[slot] * len(run) for slot, run in free.items())
        return drafts | fitting(free, lanes, room)


def _priority(queued: Sequence | Samples) -> int:
    return queued.request.priority


@dataclass(frozen=True, slots=True)
class _Parked:
    """A session's lane between two requests: `num_held` tokens, of which the first, `tokens`, are valid.

    `kind`: see Sequence.kind.
    """

    slot: int
    tokens: Tokens
    num_held: int
    kind: Kind


class Slots:
    """Owns the idle slots. A finished sequence leaves its lane warm: its KV serves as prefix cache.

    The lane of a session is parked for the session's next request. Order in which slots are taken: the
    session's own, a warm one that shares a prefix with the prompt, an empty one, the oldest warm one, the
    oldest parked one.

    `stays_warm` is false if prefix sharing is off, and for models without rollback, which cannot truncate a
    lane to the shared prefix. `limit`: number of lanes that may hold tokens while some are warm; it keeps
    lanes of finished sequences from filling the memory again after out-of-memory.
    """

    def __init__(self, count: int, *, can_rollback: bool, stays_warm: bool) -> None:
        self.warm = Prefixes()
        self._count = self.limit = count
        self._empty: list[int] = [*range(count)]
        self._age: dict[int, None] = {}  # the warm slots, the oldest first
        self._parked: dict[str, _Parked] = {}  # by session, the oldest first
        self._can_rollback, self._stays_warm = can_rollback, stays_warm

    def __len__(self) -> int:
        return len(self._empty) + len(self._age) + len(self._parked)

    @property
    def num_idle(self) -> int:
        """The number of idle slots whose lanes hold tokens."""
        return len(self._age) + len(self._parked)

    def take(self, sequence: Sequence, *, rope: int, at_least: int) -> tuple[int, int]:
        """Return a slot, and the number of cached prompt tokens in its lane, computed with factors `rope`.

        A warm lane with fewer than `at_least` cached tokens is not preferred. Only `reusable` tokens count.
        """
        beginning, kind = sequence.reusable, (rope, sequence.request.salt)
        parked = self._parked.pop(sequence.request.session, None)
        if parked is not None:
            kept = shared_length(parked.tokens, beginning) if parked.kind == kind else 0
            return parked.slot, kept if self._can_rollback or kept == parked.num_held else 0
        match = self.warm.nearest(beginning, kind)
        if match.length >= max(1, at_least):
            self._cool(match.lane)
            return match.lane, match.length
        return self._unused(), 0

    def reserve(self, count: int) -> list[int]:
        """Return `count` slots whose lanes the caller has to empty."""
        return [self._unused() for _ in range(count)]

    def put(self, sequence: Sequence) -> list[int]:
        """Free a sequence's slot. Return the slots whose lanes the caller has to empty."""
        slot, session = sequence.slot, sequence.request.session
        # After the last token the lane may hold rejected drafts.
        tokens = sequence.tokens(0, min(sequence.num_computed_tokens, len(sequence) - 1))
        freed = []
        if session:
            if (parked := self._parked.pop(session, None)) is not None:
                freed = [parked.slot]
            self._parked[session] = _Parked(slot, tokens, sequence.num_computed_tokens, sequence.kind)
        elif self._stays_warm and tokens:
            self.warm.add(slot, tokens, sequence.kind)
            self._age[slot] = None
        else:
            freed = [slot]
        return self.free(freed)

    def free(self, slots: Iterable[int]) -> list[int]:
        """Free slots. Return them: the caller has to empty their lanes."""
        freed = [*slots]
        for slot in freed:
            heapq.heappush(self._empty, slot)
        return freed

    def clear(self) -> list[int]:
        """Make all slots idle. Return them: the caller has to empty their lanes."""
        self._parked.clear()
        self._age.clear()
        self.warm.clear()
        self._empty = [*range(self._count)]
        return [*self._empty]

    def _unused(self) -> int:
        has_room = self._count - len(self._empty) < self.limit or not self.num_idle
        if self._empty and has_room:
            return heapq.heappop(self._empty)
        if self._age:
            slot = next(iter(self._age))
            self._cool(slot)
            return slot
        return self._parked.pop(next(iter(self._parked))).slot

    def _cool(self, slot: int) -> None:
        del self._age[slot]
        self.warm.remove(slot)


def step_limit(asked: int | None, max_batch: int) -> int:
    """Return the token budget of a step: `asked`, or by default 512 but at least twice `max_batch`.

    Larger steps are not faster per token, and running texts wait for them.
    """
    return max(512, 2 * max_batch) if asked is None else asked


def span_cost(sequence: Sequence, end: int) -> int:
    """Return the tokens fed up to `end` over all lanes, plus the draft tokens that must not be cut.

    These are the drafts of requests with `drafts_decide`; other drafts only use the rest of the budget.
    """
    count = end - sequence.num_computed_tokens
    return count if end < len(sequence) else count - 1 + sequence.decode_cost


def fitting(
    runs: Mapping[int, tuple[int, ...]], lanes: Mapping[int, int], room: int
) -> dict[int, tuple[int, ...]]:
    """Cut the longest runs of drafts to a common length so that all runs take at most `room` tokens."""
    longest = max(map(len, runs.values()), default=0)
    while longest and sum(lanes[slot] * min(len(run), longest) for slot, run in runs.items()) > room:
        longest -= 1
    return {slot: run[:longest] for slot, run in runs.items()}
