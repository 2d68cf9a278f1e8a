"""The scheduler: which sequences run, and what each of them feeds in the next step."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice

from gencli.core.events import Event, Reading
from gencli.core.request import StepPlan, rope_factors
from gencli.engine.feeds import Propose, Step, decode_feed, span_feed
from gencli.engine.group import Group, heads
from gencli.engine.prefix_cache import PrefixCache
from gencli.engine.queue import WINDOW, LookAhead, Pending, Samples
from gencli.engine.sequence import Sequence
from gencli.engine.slots import Slots
from gencli.engine.token_budget import fitting, span_cost, step_limit

__all__ = ["Scheduler"]

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
    ModelSpec.rope_switches. `score_rows`: limit of prompt positions scored in a step.
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
        self.pending = Pending()  # requests with samples not created yet
        self._slots = Slots(max_batch, can_rollback=can_rollback, stays_warm=can_rollback and share_prefixes)
        self._prefix_cache = PrefixCache(
            self._slots.warm, can_rollback=can_rollback, is_on=share_prefixes, rope_switches=rope_switches
        )
        self.step_tokens = step_limit(step_tokens, max_batch)
        self._num_drafts_requested = 0  # draft tokens of the last step over all lanes, before cutting
        self._num_added = 0

    def add(self, samples: Samples) -> None:
        """Append the samples of a request to the queue."""
        self.pending.add(samples)

    @property
    def has_work(self) -> bool:
        """Whether any sequence has not ended."""
        return bool(self.running or self.waiting or self.pending)

    def everything(self) -> list[Sequence]:
        """Return all sequences that exist and have not ended, running or waiting."""
        return [*self.running, *self.waiting]

    def _fill(self) -> None:
        """Create the samples that may be admitted next: urgent ones, and any that may overtake the first."""
        while (priority := self.pending.priority) is not None:
            first = self.waiting[0] if self.waiting else None
            is_near = first is None or self._num_added < first.number + self._window
            if not is_near and (first is None or priority >= first.request.priority):
                return
            if (sequence := self.pending.take()) is None:
                continue
            sequence.enqueue(self._num_added)
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
        ahead = LookAhead(self.waiting, self._num_shared, self._window)
        while (sequence := ahead.take(self._room)) is not None:
            self._fill()
            most, salt = len(sequence.reusable), sequence.request.salt
            shared = self._prefix_cache.best(sequence.prompt, most, salt=salt).length
            rope = self._rope(sequence)
            slot, num_cached = self._slots.take(sequence, rope=rope, at_least=shared)
            sequence.place(slot, num_cached, rope)
            if sequence.group:
                sequence.group.place((slot, *self._slots.reserve(sequence.num_slots - 1)))
            if num_cached:
                self._prefix_cache.begin(sequence)
            self.running.append(sequence)
            admitted.append(sequence)
        return admitted

    def _num_shared(self, sequence: Sequence) -> int:
        return self._prefix_cache.best(sequence.prompt, salt=sequence.request.salt).length

    def reading(self) -> list[Event]:
        """Return the prefill progress of sequences with over 64 prompt tokens left, running or next."""
        self._fill()
        waiting = islice(self.waiting, max(0, self.limit - self.num_used))
        running = [one for one in self.running if len(one.prompt) - one.num_computed_tokens > _LONG]
        return [
            Reading(one.request.id, one.sample, one.num_computed_tokens, len(one.prompt))
            for one in heads(chain(running, waiting))
            if len(one.prompt) - one.num_computed_tokens > _LONG
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
        place = self._stop(group)
        self.running[place:place] = group.members
        for member in group.members:
            self._prefix_cache.begin(member)

    def _stop(self, unit: Sequence | Group) -> int:
        """Remove a unit from the running sequences; return the index of its first sequence."""
        stopped = [place for place, sequence in enumerate(self.running) if sequence.unit is unit]
        for place in reversed(stopped):
            self._prefix_cache.leave(self.running.pop(place))
        return stopped[0]

    def rewind(self, sequence: Sequence) -> bool:
        """Restart the prefill of a sequence that grew beyond a rope switch; return whether it did.

        The caller then empties the sequence's lane.
        """
        if sequence.rope == self._rope(sequence):
            return False
        self._prefix_cache.leave(sequence)
        sequence.recompute(self._rope(sequence))
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
        num_idle, self._slots.most = self._slots.num_idle, min(self.limit, self.num_used)
        for sequence in self.running:
            self._prefix_cache.leave(sequence)
        self.running.clear()
        self.waiting = deque(sorted([*preempted, *self.waiting], key=_priority))
        return preempted, self._slots.clear(), num_idle

    def plan(self, propose: Propose, is_waiting: Callable[[Sequence], bool]) -> Step:
        """Plan the next step: copies of prompt prefixes, then decoding, then prompt chunks within the budget.

        `propose` is called once, with the sequences whose next token this step chooses. Sequences for which
        `is_waiting` is true, and members of a group that is behind, do not feed their last token, so no token
        is chosen for them.
        """
        forks = self._prefix_cache.forks(self.running)
        held = self._held(is_waiting)
        decoding = self._decoding(held)
        spans = [*self._chunks(self._left(decoding), held)] if len(decoding) < len(self.running) else []
        sampled = decoding + [sequence for sequence, end in spans if end == len(sequence)]
        left = self._left(decoding) - sum(span_cost(sequence, end) for sequence, end in spans)
        drafts = self._cut(propose(sampled), sampled, left)
        pairs = [(sequence, drafts.get(sequence.slot, ())) for sequence in sampled]
        feeds = [decode_feed(sequence, run) for sequence, run in pairs[: len(decoding)]]
        feeds += [span_feed(sequence, end, drafts.get(sequence.slot, ())) for sequence, end in spans]
        sequences = (*decoding, *(sequence for sequence, _ in spans))
        num_scored = sum(feed.num_scored for feed in feeds[len(decoding) :]) if spans else 0
        return Step(StepPlan(tuple(feeds), num_scored), sequences, pairs, forks)

    def _held(self, is_waiting: Callable[[Sequence], bool]) -> set[Sequence]:
        """Return the sequences that do not feed their last token in this step."""
        groups = {sequence.group for sequence in self.running if sequence.group is not None}
        behind = {group for group in groups if group.is_behind}
        return {s for s in self.running if is_waiting(s) or s.group in behind}

    def _left(self, decoding: list[Sequence]) -> int:
        return self.step_tokens - sum([sequence.decode_cost for sequence in decoding])

    def _decoding(self, held: set[Sequence]) -> list[Sequence]:
        """Return the sequences that decode in this step.

        Sequences whose drafts must not be cut take turns if they do not all fit; the delay changes no text.
        """
        able = [s for s in self.running if s.lag == 1 and s not in held]
        bound = [s for s in able if s.drafts_decide]
        if not bound:
            return able
        decoding, late = [s for s in able if not s.drafts_decide], list[Sequence]()
        left = self._left(decoding)
        if len(able) < len(self.running):
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

    def _chunks(self, left: int, held: set[Sequence]) -> Iterator[_Span]:
        """Yield sequences in prefill and the token up to which each is fed. `left`: budget after decoding."""
        budget = max(left - self._num_drafts_requested, min(left, self.step_tokens // 4), 1)
        if held:
            budget = max(budget - self.step_tokens // 4, 1)  # reserved for the companions that they wait for
        rows = self.score_rows
        for sequence in self.running:
            scoring = sequence.scoring
            last = len(sequence) - (sequence in held or (scoring is not None and scoring.is_only))
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
        if not drafts:
            self._num_drafts_requested = 0
            return drafts
        bound = {s.slot for s in sampled if s.held or (s.drafts_decide and not s.known)}
        lanes = {s.slot: s.request.num_lanes for s in sampled if s.slot not in bound}
        free = {slot: run for slot, run in drafts.items() if slot in lanes}
        self._num_drafts_requested = sum(lanes[slot] * len(run) for slot, run in free.items())
        return drafts | fitting(free, lanes, room)


def _priority(sequence: Sequence) -> int:
    return sequence.request.priority
