"""Adaptive number of draft tokens per step, from measured costs and acceptance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter, Measured
from gencli.speculative.costs import Acceptance, Clock, Costs, tokens_per_step
from gencli.speculative.draft_sampler import DraftSampler

__all__ = ["AdaptiveDrafter"]

_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)  # draft tokens per text and step that are considered
_PRIOR = 0.7  # prior acceptance rate
_MIN_ACCEPTANCE = 0.1  # of a whole run; longer runs, which are less probable, are not considered
_WARM_UP = 1  # steps with drafts whose time is not used
_PLAIN_EVERY = 32  # consecutive steps with drafts, before a plain step measures the baseline again
_INITIAL_BUDGET, _BUDGET_SHARE = 1.0, 0.02  # allowed loss, in plain steps: at the start, and per step
_MAX_CREDIT = 8.0  # largest gain that later losses may use up, in plain steps
_PAUSE = 8  # steps without drafts, before the gain is estimated again
_TRIAL = 4  # steps of a trial, with one draft token each
_REST, _LONGEST_REST = 64, 1024  # steps without drafts before a trial: first, and after repeated doubling


def _slot_acceptance() -> Acceptance:
    return Acceptance(weight=4, fading=0.95)


@dataclass(slots=True)
class _Slot:
    """A sample: its requested number of draft tokens (None: adaptive), and its acceptance rate."""

    length: int | None
    acceptance: Acceptance = field(default_factory=_slot_acceptance)


class AdaptiveDrafter(Drafter):
    """Chooses before each step how many draft tokens to ask another drafter for.

    A request with a fixed number gets that number. Otherwise the number maximises the estimated speed
    relative to a plain step. `clock`, in seconds, decides the number of draft tokens and nothing else. Net
    losses are limited by a budget: one plain step, plus 2 % of all steps. Prefill of the draft model does not
    count; TailFirstDrafter limits it. `name`: handle only requests that name this drafter; "" = all.
    """

    def __init__(self, inner: Drafter, *, clock: Clock, name: str = "") -> None:
        self._inner, self._name, self._clock = inner, name, clock
        self.is_autoregressive, self.notices = inner.is_autoregressive, inner.notices
        self._slots: dict[int, _Slot] = {}
        self._costs, self._acceptance = Costs(), Acceptance(weight=3, fading=0.99)
        self._lanes = 0
        self._seconds, self._longest, self._is_drafting = 0.0, 0, False  # this step's drafting
        self._balance, self._steps = 0.0, 0  # net loss in plain steps; number of steps
        self._drafted = 0  # number of steps with drafts
        self._drafted_in_row, self._rest, self._rested, self._trial = 0, _REST, 0, 0
        self._pause = 0  # remaining steps of a pause

    def bind(self, chooser: DraftSampler) -> None:
        self._inner.bind(chooser)

    def handles(self, request: Request) -> bool:
        return self._name in ("", request.drafting.drafter) and self._inner.handles(request)

    def admit(self, slot: int, request: Request) -> None:
        self._slots[slot] = _Slot(request.num_drafts)
        self._inner.admit(slot, request)

    def release(self, slot: int) -> None:
        del self._slots[slot]
        self._inner.release(slot)

    def trim(self) -> None:
        self._inner.trim()

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        lengths = self._lengths(asks)
        wanted = [replace(ask, most=lengths[ask.slot]) for ask in asks if lengths[ask.slot]]
        start = self._clock()
        runs = self._inner.propose(wanted) if wanted else ()
        self._seconds = self._clock() - start if wanted else 0.0
        found = {ask.slot: run for ask, run in zip(wanted, runs, strict=True)}
        self._longest, self._is_drafting = max(map(len, runs), default=0), bool(wanted)
        return [found.get(ask.slot, ()) for ask in asks]

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        for acceptance in (self._acceptance, self._slots[slot].acceptance):
            acceptance.add(proposed=proposed, accepted=accepted)
        self._inner.observe(slot, proposed=proposed, accepted=accepted)

    def measure(self, step: Measured) -> None:
        """Record the cost of the step and update the balance."""
        self._inner.measure(step)
        self._lanes = step.lanes
        self._steps += 1
        if not step.drafted:
            self._costs.add_plain(step.lanes, step.seconds)
        self._drafted_in_row = self._drafted_in_row + 1 if step.drafted else 0
        self._rested = 0 if self._is_drafting else self._rested + 1
        if self._is_drafting and not self._inner.is_reading:
            self._drafted += 1
            if self._drafted > _WARM_UP:
                self._update_balance(step)
        # The next step may come without a call of propose.
        self._seconds, self._longest, self._is_drafting = 0.0, 0, False

    def _update_balance(self, step: Measured) -> None:
        """Record the costs of drafting and verification, and add their net loss to the balance."""
        plain = self._costs.plain(step.lanes)
        if plain is None:
            return
        drafts = step.drafted / step.lanes
        passes = max(self._longest, 1) if self.is_autoregressive else 1
        if step.drafted:
            self._costs.add_verify(drafts, step.seconds / plain - 1, longest=max(self._longest, 1))
        # A forward pass counts even if its draft token was too improbable to be proposed.
        self._costs.add_draft(self._seconds / plain / passes)
        usual = (self._costs.draft or 0.0) * passes + (self._costs.verify(drafts) if step.drafted else 0.0)
        # Time beyond the usual cost is noise of the machine.
        extra = min((step.seconds + self._seconds) / plain - 1, usual)
        self._balance = max(self._balance + extra - step.accepted / step.lanes, -_MAX_CREDIT)

    def _lengths(self, asks: Sequence[DraftAsk]) -> dict[int, int]:
        """Number of draft tokens to ask for, by slot."""
        fixed = {a.slot: min(n, a.most) for a in asks if (n := self._slots[a.slot].length) is not None}
        free = [ask for ask in asks if ask.slot not in fixed]
        return fixed | (self._adaptive_lengths(free) if free else {})

    def _adaptive_lengths(self, asks: Sequence[DraftAsk]) -> dict[int, int]:
        none = dict.fromkeys((ask.slot for ask in asks), 0)
        if self._pause:
            self._pause -= 1
            return none
        lanes = max(self._lanes, len(asks))
        if self._budget < 0:
            self._pause = _PAUSE
            return none
        if self._costs.plain(lanes) is None or self._drafted_in_row >= _PLAIN_EVERY:
            return none
        if self._costs.draft is None:
            return dict.fromkeys(none, 1)
        prior = self._acceptance.rate(_PRIOR)
        rates = {ask.slot: self._slots[ask.slot].acceptance.rate(prior) for ask in asks}
        options = (_at_most(length, asks, rates) for length in _LENGTHS)
        best = max(options, key=lambda lengths: self._gain(lengths, rates, lanes))
        if self._gain(best, rates, lanes) > 1:
            self._rest = _REST
            return best
        return self._trial_lengths(asks, none)

    def _trial_lengths(self, asks: Sequence[DraftAsk], none: dict[int, int]) -> dict[int, int]:
        """From time to time try one draft token per text although it does not seem to pay."""
        cost = _TRIAL * ((self._costs.draft or 0.0) + self._costs.verify(1))
        if self._rested >= self._rest and cost <= self._budget:
            self._trial, self._rest = _TRIAL, min(2 * self._rest, _LONGEST_REST)
        if not self._trial:
            self._pause = _PAUSE
            return none
        self._trial -= 1
        return dict.fromkeys(none, 1)

    @property
    def _budget(self) -> float:
        """Loss that is still allowed, in plain steps."""
        return _INITIAL_BUDGET + _BUDGET_SHARE * self._steps - self._balance

    def _gain(self, lengths: Mapping[int, int], rates: Mapping[int, float], lanes: int) -> float:
        """Estimated tokens per second with these draft lengths, relative to a plain step."""
        tokens = sum(tokens_per_step(rates[slot], length) - 1 for slot, length in lengths.items())
        draft = (self._costs.draft or 0.0) * (max(lengths.values()) if self.is_autoregressive else 1)
        cost = 1 + draft + self._costs.verify(sum(lengths.values()) / lanes)
        return (1 + tokens / lanes) / cost


def _at_most(most: int, asks: Sequence[DraftAsk], rates: Mapping[int, float]) -> dict[int, int]:
    """Draft lengths by slot: at most `most`, and no run with an acceptance below 0.1."""
    found = {}
    for ask in asks:
        length = min(most, ask.most)
        while length and rates[ask.slot] ** length < _MIN_ACCEPTANCE:
            length -= 1
        found[ask.slot] = length
    return found
