"""Adaptive number of draft tokens per step, from measured costs and acceptance rates; and lazy prefill of
a draft model: the tail of a long text first.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from gencli.core.request import Request, shared_length
from gencli.core.tree_shapes import AUTO_TREE, DynamicTree, StaticTree, TreeShape
from gencli.speculative.drafter import DraftAsk, Drafter, DraftTree, MeasuredStep, OuterDrafter

_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)  # draft tokens per text and step that are considered
_TREES = ((4, 8), (5, 16), (6, 32), (7, 60))  # depths and nodes of trees that are considered
_NODES_EACH = 4  # nodes of a tree for each of a fixed number of draft tokens in turn
_PRIOR = 0.7  # prior acceptance rate
_MIN_RUN_ACCEPTANCE = 0.1  # of a whole run; longer runs, which are less probable, are not considered
_MOST_BETTER = 1.5  # by this factor a tree is thought to be better than a chain, before it is measured
_WARM_UP = 1  # steps with drafts whose time is not used
_PLAIN_EVERY = 32  # consecutive steps with drafts, before a plain step measures the baseline again
_INITIAL_BUDGET, _BUDGET_SHARE = 1.0, 0.02  # allowed loss, in plain steps: at the start, and per step
_MAX_CREDIT = 8.0  # largest gain that later losses may use up, in plain steps
_PAUSE = 8  # steps without drafts, before the gain is estimated again
_TRIAL = 4  # steps of a trial, with one draft token each
_REST, _LONGEST_REST = 24, 1024  # steps without drafts before a trial: first, and after repeated doubling


class _Amount(NamedTuple):
    """Draft tokens of a text and step: `length` in turn, as a chain or, with `nodes`, as a tree."""

    length: int
    nodes: int = 0

    @property
    def tokens(self) -> int:
        return self.nodes or self.length


@dataclass(slots=True)
class _DraftSlot:
    """A sample: its requested number of draft tokens (None: adaptive), and its shape of trees.

    `acceptance`: rates of draft tokens by the nodes of trees, 0 for chains. `nodes`: those of the last draft.
    `principal`: the principal chain of the last tree, and the length of the text before it.
    """

    length: int | None
    tree: TreeShape | None
    acceptance: dict[int, Acceptance] = field(default_factory=dict)
    nodes: int = 0
    principal: tuple[int, tuple[int, ...]] = (0, ())

    def rate(self, nodes: int, prior: float) -> float:
        """Return the acceptance rate of a draft token in a tree of so many nodes, or in a chain."""
        return self.acceptance[nodes].rate(prior) if nodes in self.acceptance else prior


class AdaptiveDrafter(OuterDrafter):
    """Chooses before each step how many draft tokens to ask another drafter for.

    A request with a fixed number gets that number. Otherwise the number maximises the estimated speed
    relative to a plain step. Where trees are allowed it may be that of a tree; a tree of a given shape is
    taken whole or not at all. `clock`, in seconds, decides the number of draft tokens and nothing else. Net
    losses are limited by a budget: one plain step, plus 2 % of all steps. Prefill of the draft model does not
    count; TailFirstDrafter limits it. `name`: handle only requests that name this drafter; "" = all.
    """

    def __init__(self, inner: Drafter, *, clock: Clock, name: str = "") -> None:
        super().__init__(inner)
        self._drafter, self._name, self._clock = inner, name, clock
        self._slots: dict[int, _DraftSlot] = {}
        self._costs, self._acceptance = Costs(), dict[int, Acceptance]()  # by the nodes of trees
        self._lanes = 0
        self._amount, self._longest = _Amount(0), 0  # this step's largest: asked for, and proposed
        self._seconds, self._is_drafting = 0.0, False
        self._balance, self._steps = 0.0, 0  # net loss in plain steps; number of steps
        self._drafted = 0  # number of steps with drafts
        self._drafted_in_row, self._rest, self._rested, self._trial = 0, _REST, 0, 0
        self._pause = 0  # remaining steps of a pause

    def handles(self, request: Request) -> bool:
        return self._name in ("", request.drafting.drafter) and super().handles(request)

    def admit(self, slot: int, request: Request) -> None:
        self._slots[slot] = _DraftSlot(request.num_drafts, request.drafting.tree)
        super().admit(slot, request)

    def release(self, slot: int) -> None:
        del self._slots[slot]
        super().release(slot)

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        for ask in asks:
            self._count_principal(ask)
        fixed = {
            ask.slot: self._fitted(_Amount(length, _NODES_EACH * length), ask)
            for ask in asks
            if (length := self._slots[ask.slot].length) is not None
        }
        free = [ask for ask in asks if ask.slot not in fixed]
        amounts = fixed | (self._adaptive_amounts(free) if free else {})
        wanted = []
        for ask in asks:
            most, nodes = amounts[ask.slot]
            self._slots[ask.slot].nodes = nodes
            if most:
                wanted.append(replace(ask, most=most, nodes=min(nodes, ask.nodes)))
        self._amount = max(amounts.values(), key=lambda amount: amount.tokens, default=_Amount(0))
        start = self._clock()
        runs = self._drafter.propose(wanted) if wanted else ()
        self._seconds = self._clock() - start if wanted else 0.0
        runs_by_slot = {ask.slot: run for ask, run in zip(wanted, runs, strict=True)}
        lengths = [min(len(run), ask.nodes or ask.most) for ask, run in zip(wanted, runs, strict=True)]
        self._longest, self._is_drafting = max(lengths, default=0), bool(wanted)
        for ask, run in zip(wanted, runs, strict=True):
            if isinstance(run, DraftTree):
                self._slots[ask.slot].principal = len(ask.tokens), run.principal
        return [runs_by_slot.get(ask.slot, ()) for ask in asks]

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        self._count(slot, self._slots[slot].nodes, proposed, accepted)
        super().observe(slot, proposed=proposed, accepted=accepted)

    def _count(self, slot: int, nodes: int, proposed: int, accepted: int) -> None:
        own = self._slots[slot].acceptance
        for rates, weight, fading in ((self._acceptance, 3, 0.99), (own, 4, 0.95)):
            rate = rates.setdefault(nodes, Acceptance(weight=weight, fading=fading))
            rate.add(proposed=proposed, accepted=accepted)

    def _count_principal(self, ask: DraftAsk) -> None:
        """Count the principal chain of the last tree as a chain: it tells what chains would be worth."""
        slot = self._slots[ask.slot]
        (length, run), slot.principal = slot.principal, (0, ())
        if run and len(ask.tokens) > length:
            right = shared_length(run, tuple(ask.tokens[length:]))
            self._count(ask.slot, 0, len(run), right)

    def measure(self, step: MeasuredStep) -> None:
        """Record the cost of the step and update the balance."""
        super().measure(step)
        self._lanes = step.lanes
        self._steps += 1
        if not step.drafted:
            self._costs.add_plain(step.lanes, step.seconds)
        self._drafted_in_row = self._drafted_in_row + 1 if step.drafted else 0
        self._rested = 0 if self._is_drafting else self._rested + 1
        if self._is_drafting and not self._drafter.is_reading:
            self._drafted += 1
            if self._drafted > _WARM_UP:
                self._update_balance(step)
        # The next step may come without a call of propose.
        self._seconds, self._longest, self._is_drafting = 0.0, 0, False
        self._amount = _Amount(0)

    def _update_balance(self, step: MeasuredStep) -> None:
        """Record the costs of drafting and verification, and add their net loss to the balance."""
        plain = self._costs.plain(step.lanes)
        if plain is None:
            return
        drafts = step.drafted / step.lanes
        nodes = self._amount.nodes
        deepest = self._amount.length if nodes else self._longest
        passes = max(deepest, 1) if self.is_autoregressive else 1
        if step.drafted:
            self._costs.add_verify(drafts, step.seconds / plain - 1, longest=max(self._longest, 1))
        # A forward pass counts even if its draft token was too improbable to be proposed.
        self._costs.add_draft(self._seconds / plain / passes, nodes)
        usual = self._costs.draft(nodes) * passes + (self._costs.verify(drafts) if step.drafted else 0.0)
        # Time beyond the usual cost is noise of the machine.
        extra = min((step.seconds + self._seconds) / plain - 1, usual)
        self._balance = max(self._balance + extra - step.accepted / step.lanes, -_MAX_CREDIT)

    def _adaptive_amounts(self, asks: Sequence[DraftAsk]) -> dict[int, _Amount]:
        """Draft tokens to ask for, by slot."""
        none = dict.fromkeys((ask.slot for ask in asks), _Amount(0))
        if self._pause:
            self._pause -= 1
            return none
        lanes = max(self._lanes, len(asks))
        if self._budget < 0:
            self._pause = _PAUSE
            return none
        if self._costs.plain(lanes) is None or self._drafted_in_row >= _PLAIN_EVERY:
            return none
        least = {ask.slot: self._fitted(_Amount(1), ask) for ask in asks}
        if not self._costs.has_draft:
            return least
        options = [_Amount(length) for length in _LENGTHS]
        if any(ask.nodes and self._slots[ask.slot].tree == AUTO_TREE for ask in asks):
            options += [_Amount(*sizes) for sizes in _TREES]
        best, gain = least, 0.0
        for option in options:
            amounts = {ask.slot: self._fitted(option, ask, _MIN_RUN_ACCEPTANCE) for ask in asks}
            if (speed := self._gain(amounts, lanes)) > gain:
                best, gain = amounts, speed
        if gain > 1:
            self._rest = _REST
            return best
        # From time to time one draft token per text is tried although it does not seem to pay.
        cost = _TRIAL * (self._costs.draft() + self._costs.verify(1))
        if self._rested >= self._rest and cost <= self._budget:
            self._trial, self._rest = _TRIAL, min(2 * self._rest, _LONGEST_REST)
        if not self._trial:
            self._pause = _PAUSE
            return none
        self._trial -= 1
        return least

    @property
    def _budget(self) -> float:
        return _INITIAL_BUDGET + _BUDGET_SHARE * self._steps - self._balance

    def _rate(self, slot: int, amount: _Amount) -> float:
        """Acceptance rate of a draft token; before the first tree one grows with its width from a chain's."""
        chain = self._acceptance[0].rate(_PRIOR) if 0 in self._acceptance else _PRIOR
        own = self._slots[slot].rate(0, chain)
        if not amount.nodes:
            return own
        missed = (1 - own) / max(1.0, amount.nodes / amount.length) ** 0.5
        prior = min(1 - missed, _MOST_BETTER * own)
        shared = self._acceptance.get(amount.nodes)
        return self._slots[slot].rate(amount.nodes, prior if shared is None else shared.rate(prior))

    def _gain(self, amounts: Mapping[int, _Amount], lanes: int) -> float:
        """Estimated tokens per second with these drafts, relative to a plain step."""
        tokens = sum(
            tokens_per_step(self._rate(slot, amount), amount.length) - 1 for slot, amount in amounts.items()
        )
        largest = max(amounts.values(), key=lambda amount: amount.tokens)
        draft = self._costs.draft(largest.nodes)
        if self.is_autoregressive:
            draft *= max(amount.length for amount in amounts.values())
        drafts = sum(amount.tokens for amount in amounts.values()) / lanes
        cost = 1 + draft + self._costs.verify(drafts, in_proportion=largest.nodes > 0)
        return (1 + tokens / lanes) / cost

    def _fitted(self, wanted: _Amount, ask: DraftAsk, least: float = 0.0) -> _Amount:
        """Draft tokens of an ask: at most those wanted, in a chain or in a tree of the request's shape.

        No chain has a lower acceptance than `least`.
        """
        tree = self._slots[ask.slot].tree if ask.nodes else None
        if isinstance(tree, StaticTree | DynamicTree):
            length = tree.depth if self._slots[ask.slot].length is None else min(tree.depth, wanted.length)
            return _Amount(min(length, ask.most), tree.nodes)
        length = min(wanted.length, ask.most)
        if tree == AUTO_TREE and wanted.nodes:
            return _Amount(length, wanted.nodes)
        rate = self._rate(ask.slot, _Amount(1))
        while length and rate**length < least:
            length -= 1
        return _Amount(length)


_TAIL = 16  # tokens at the end of a text; feeding them costs about as much as a few draft tokens
_WHOLE_FROM = 0.25  # acceptance rate from which on whole texts are prefilled


@dataclass(slots=True)
class _TailText:
    """The part of a slot's text, from `start` to `end`, that the drafter has seen."""

    request: Request
    start: int = 0
    end: int = 0


class TailFirstDrafter(OuterDrafter):
    """Limits prefill of a draft model whose drafts may not be accepted.

    A text of which more than 16 tokens are new to the drafter is shown to it by its last 16 tokens alone,
    until the acceptance rate over all texts is 0.25; from then on the whole text is shown. Requests with a
    fixed number of draft tokens are shown whole from the start.
    """

    def __init__(self, inner: Drafter) -> None:
        super().__init__(inner)
        self._drafter = inner
        self._texts: dict[int, _TailText] = {}
        self._acceptance = Acceptance(weight=4, fading=0.98)

    def admit(self, slot: int, request: Request) -> None:
        self._texts[slot] = _TailText(request)
        super().admit(slot, request)

    def release(self, slot: int) -> None:
        del self._texts[slot]
        super().release(slot)

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        starts = [self._start(ask) for ask in asks]
        shown = [
            replace(ask, tokens=ask.tokens[start:]) if start else ask
            for ask, start in zip(asks, starts, strict=True)
        ]
        runs = self._drafter.propose(shown)
        self.is_reading = self._drafter.is_reading
        return runs

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        self._acceptance.add(proposed=proposed, accepted=accepted)
        super().observe(slot, proposed=proposed, accepted=accepted)

    def _start(self, ask: DraftAsk) -> int:
        """First token of the text that the drafter is shown."""
        text, length = self._texts[ask.slot], len(ask.tokens)
        is_behind, text.end = length - text.end > _TAIL, length
        start = text.start
        if text.request.num_drafts is not None or self._acceptance.rate(0.0) >= _WHOLE_FROM:
            start = 0
        elif is_behind:
            start = length - _TAIL
        if start != text.start:  # the drafter sees another text
            text.start = start
            self._drafter.release(ask.slot)
            shown = replace(text.request, prompt_ids=tuple(ask.tokens[start:])) if start else text.request
            self._drafter.admit(ask.slot, shown)
        return start


_MEMORY = 7  # latest measurements kept of each kind
_MIN_PLAIN = 3  # plain steps; with fewer their cost is unknown


class Costs:
    """Time of plain steps in seconds, by batch size, and costs of drafting in plain steps.

    Each cost is the lower quartile of the latest measurements, since other load only makes steps slower.
    """

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}
        self._verify: dict[int, deque[float]] = {}  # by mean number of draft tokens per text
        self._draft: dict[int, deque[float]] = {}  # by nodes of trees

    def plain(self, lanes: int) -> float | None:
        """Seconds of a plain step; None if unknown for batch sizes within 25 % of `lanes`."""
        sizes = [
            n for n, seen in self._plain.items() if len(seen) >= _MIN_PLAIN and abs(n - lanes) <= lanes / 4
        ]
        return _lower_quartile(self._plain[min(sizes, key=lambda n: abs(n - lanes))]) if sizes else None

    def verify(self, drafts: float, *, in_proportion: bool = False) -> float:
        """Extra time of a step with `drafts` draft tokens per text, in plain steps.

        That of the nearest measured number, and at most that of any larger one. With `in_proportion` more
        drafts than were ever measured take more time.
        """
        if not self._verify:
            return 0.0
        nearest = min(self._verify, key=lambda n: abs(n - drafts))
        extra = min(_lower_quartile(seen) for n, seen in self._verify.items() if n >= nearest)
        return extra * drafts / nearest if in_proportion and drafts > max(self._verify) > 0 else extra

    @property
    def has_draft(self) -> bool:
        """Whether the cost of drafting was measured."""
        return bool(self._draft)

    def draft(self, nodes: int = 0) -> float:
        """Cost of drafting trees of so many nodes, as `add_draft` takes it; 0 before the first.

        That of the nearest measured number of nodes; 0 nodes is a chain.
        """
        if not self._draft:
            return 0.0
        return _lower_quartile(self._draft[min(self._draft, key=lambda n: abs(n - nodes))])

    def add_plain(self, lanes: int, seconds: float) -> None:
        self._plain.setdefault(lanes, deque(maxlen=_MEMORY)).append(seconds)

    def add_verify(self, drafts: float, extra: float, *, longest: int) -> None:
        """Record the extra time of a step, in plain steps, with `drafts` draft tokens per text on average.

        `longest`: most draft tokens of a text. It limits the cost: fed one by one, they take a plain step
        each.
        """
        self._verify.setdefault(round(drafts), deque(maxlen=_MEMORY)).append(min(max(extra, 0.0), longest))

    def add_draft(self, cost: float, nodes: int = 0) -> None:
        """Record the cost of drafting, in plain steps: of a pass of an autoregressive drafter, else of all.

        `nodes`: those of a tree; a pass of one takes longer.
        """
        self._draft.setdefault(nodes, deque(maxlen=_MEMORY)).append(cost)


class Acceptance:
    """Acceptance rate of a draft token, given that those before it were accepted.

    Each new trial multiplies the weight of older ones by `fading`. The prior has the weight of `weight`
    trials.
    """

    def __init__(self, *, weight: float, fading: float) -> None:
        self._weight, self._fading = weight, fading
        self._trials, self._hits = 0.0, 0.0

    def add(self, *, proposed: int, accepted: int) -> None:
        """Count one run of drafts. Tokens after the first rejected one are not trials."""
        for position in range(min(accepted + 1, proposed)):
            self._trials = self._trials * self._fading + 1
            self._hits = self._hits * self._fading + (position < accepted)

    def rate(self, prior: float) -> float:
        """The acceptance rate in 0..1: (hits + weight * prior) / (trials + weight)."""
        return (self._hits + self._weight * prior) / (self._trials + self._weight)


def _lower_quartile(seen: Collection[float]) -> float:
    return sorted(seen)[len(seen) // 4]


def tokens_per_step(acceptance: float, length: int) -> float:
    """Expected tokens per step with k = `length` draft tokens, including the one that every step chooses.

    (1 - a^(k+1)) / (1 - a) with acceptance rate a per draft token (Leviathan, Kalman, Matias 2023).
    """
    if acceptance >= 1:
        return length + 1.0
    return float((1 - acceptance ** (length + 1)) / (1 - acceptance))


def speedup(acceptance: float, length: int, *, draft: float, verify: float) -> float:
    """Expected tokens per second relative to plain steps: tokens_per_step / (1 + draft + verify).

    `draft`: cost of drafting all tokens, in plain steps. `verify`: extra cost of verifying them.
    """
    return tokens_per_step(acceptance, length) / (1 + draft + verify)


_DECAY = 0.97  # weight of a step relative to the step after it
_MIN_STEPS = 8.0  # weighted number of steps below which the cost is unknown
_MIN_VARIANCE = 0.25  # of the tokens per step, in tokens squared; below it the slope is undetermined


class StepCostModel:
    """Step time as a linear function of the tokens fed: t(n) = base + slope * n, in seconds.

    Least squares over past steps, exponentially weighted (decay 0.97 per step). Reads no clock.
    """

    def __init__(self) -> None:
        self._steps = self._tokens = self._seconds = self._squares = self._products = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Add a step that fed `num_tokens` tokens in `seconds`."""
        self._steps = self._steps * _DECAY + 1
        self._tokens = self._tokens * _DECAY + num_tokens
        self._seconds = self._seconds * _DECAY + seconds
        self._squares = self._squares * _DECAY + num_tokens * num_tokens
        self._products = self._products * _DECAY + num_tokens * seconds

    def draft_cost(self, batch_size: int) -> float:
        """Cost of one draft token relative to one token of a plain step of `batch_size` texts, in 0..1.

        slope * batch_size / (base + slope * batch_size); 0 while it is unknown. A draft token pays if its
        acceptance probability exceeds this cost.
        """
        spread = self._steps * self._squares - self._tokens**2
        if self._steps < _MIN_STEPS or spread < _MIN_VARIANCE * self._steps**2:
            return 0.0
        slope = (self._steps * self._products - self._tokens * self._seconds) / spread
        base = (self._seconds - slope * self._tokens) / self._steps
        if slope <= 0:
            return 0.0
        return slope * batch_size / (max(base, 0.0) + slope * batch_size)


Clock = Callable[[], float]  # seconds

_MAX_RESOLUTION = 1e-5  # seconds, far below a step's duration


def work_clock(device: torch.device) -> Clock:
    """Return `time.thread_time` for a model on a CPU, `time.perf_counter` otherwise.

    Thread time leaves out the load of other processes. Beside an accelerator the thread is idle, and where
    its resolution is coarser than 10 µs it is too inexact; then the wall clock is used.
    """
    is_fine = time.get_clock_info("thread_time").resolution <= _MAX_RESOLUTION
    return time.thread_time if device.type == "cpu" and is_fine else time.perf_counter
