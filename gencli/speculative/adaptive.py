"""How many drafts pay, none included: weighed before each step from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter, Measured
from gencli.speculative.costs import Acceptance, Costs
from gencli.speculative.draft_sampler import DraftSampler
from gencli.speculative.gain import tokens_per_step
from gencli.speculative.work_clock import Clock

__all__ = ["AdaptiveDrafter"]

_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)  # drafts at once
_PRIOR = 0.7  # acceptance that is taken for granted at the start
_LEAST = 0.1  # a draft that stands less often is not worth its row
_WARM = 1  # first step with drafts, whose time says little
_PLAIN_EVERY = 32  # steps with drafts, before a plain one shows what these save
_ALLOWED, _SHARE = 1.0, 0.02  # what may be lost: plain steps at the start, and of each step later
_CREDIT = 8.0  # gains that losses are set off against, in plain steps
_PAUSE = 8  # steps without drafts, before what they would bring is weighed again
_TRIAL = 4  # steps with one draft each, in which drafting is tried again
_REST, _LONGEST_REST = 64, 1024  # steps before that; each trial in vain doubles them


def _seldom() -> Acceptance:
    return Acceptance(weight=4, fading=0.95)


@dataclass(slots=True)
class _Slot:
    """A sample: the number of drafts it asked for, and how its own fare."""

    length: int | None
    acceptance: Acceptance = field(default_factory=_seldom)


class AdaptiveDrafter(Drafter):
    """Asks another drafter for as many tokens as pay; requests that name a number get that number.

    Steps and drafts are timed by `clock`, which decides how many drafts there are and nothing else. What
    drafting has cost beyond its gain is held against a budget, so that drafts that never stand cost little:
    a plain step, and 2 % of the steps from then on. What the draft reads of long texts is not counted, but
    held down (see TailFirstDrafter). It handles requests that name it; without a name, all.
    """

    def __init__(self, inner: Drafter, *, clock: Clock, name: str = "") -> None:
        self._inner, self._name, self._clock = inner, name, clock
        self.passes, self.notices = inner.passes, inner.notices
        self._slots: dict[int, _Slot] = {}
        self._costs, self._acceptance = Costs(), Acceptance(weight=3, fading=0.99)
        self._lanes = 0
        self._seconds, self._longest, self._is_drafting = 0.0, 0, False  # of this step's proposals
        self._balance, self._steps = 0.0, 0  # losses, in plain steps, and steps so far
        self._drafted = 0  # steps with drafts so far
        self._drafted_in_row, self._rest, self._rested, self._trial = 0, _REST, 0, 0
        self._pause = 0  # steps that are left of one

    def bind(self, chooser: DraftSampler) -> None:
        """See Drafter."""
        self._inner.bind(chooser)

    def handles(self, request: Request) -> bool:
        """See Drafter."""
        return self._name in ("", request.drafting.drafter) and self._inner.handles(request)

    def admit(self, slot: int, request: Request) -> None:
        """See Drafter."""
        self._slots[slot] = _Slot(request.num_drafts)
        self._inner.admit(slot, request)

    def release(self, slot: int) -> None:
        """See Drafter."""
        del self._slots[slot]
        self._inner.release(slot)

    def trim(self) -> None:
        """See Drafter."""
        self._inner.trim()

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        """See Drafter."""
        lengths = self._lengths(asks)
        wanted = [replace(ask, most=lengths[ask.slot]) for ask in asks if lengths[ask.slot]]
        start = self._clock()
        runs = self._inner.propose(wanted) if wanted else ()
        self._seconds = self._clock() - start if wanted else 0.0
        found = {ask.slot: run for ask, run in zip(wanted, runs, strict=True)}
        self._longest, self._is_drafting = max(map(len, runs), default=0), bool(wanted)
        return [found.get(ask.slot, ()) for ask in asks]

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """See Drafter."""
        for acceptance in (self._acceptance, self._slots[slot].acceptance):
            acceptance.add(proposed=proposed, accepted=accepted)
        self._inner.observe(slot, proposed=proposed, accepted=accepted)

    def measure(self, step: Measured) -> None:
        """Learn what the step cost, and keep the books."""
        self._inner.measure(step)
        self._lanes = step.lanes
        self._steps += 1
        if not step.drafted:
            self._costs.add_plain(step.lanes, step.seconds)
        self._drafted_in_row = self._drafted_in_row + 1 if step.drafted else 0
        self._rested = 0 if self._is_drafting else self._rested + 1
        if self._is_drafting and not self._inner.is_reading:
            self._drafted += 1
            if self._drafted > _WARM:
                self._book(step)
        # In the next step there may be nothing to ask of it.
        self._seconds, self._longest, self._is_drafting = 0.0, 0, False

    def _book(self, step: Measured) -> None:
        """What drafting and verifying took, and what was lost or won by it."""
        plain = self._costs.plain(step.lanes)
        if plain is None:
            return
        drafts = step.drafted / step.lanes
        passes = max(self._longest, 1) if self.passes else 1
        if step.drafted:
            self._costs.add_verify(drafts, step.seconds / plain - 1, longest=max(self._longest, 1))
        # A pass whose draft is too improbable to be proposed takes as long as any.
        self._costs.add_draft(self._seconds / plain / passes)
        usual = (self._costs.draft or 0.0) * passes + (self._costs.verify(drafts) if step.drafted else 0.0)
        # What else the machine does in one step is no fault of its drafts.
        extra = min((step.seconds + self._seconds) / plain - 1, usual)
        self._balance = max(self._balance + extra - step.accepted / step.lanes, -_CREDIT)

    def _lengths(self, asks: Sequence[DraftAsk]) -> dict[int, int]:
        """By slot how many drafts are wanted, 0 included."""
        fixed = {a.slot: min(n, a.most) for a in asks if (n := self._slots[a.slot].length) is not None}
        free = [ask for ask in asks if ask.slot not in fixed]
        return fixed | (self._paying(free) if free else {})

    def _paying(self, asks: Sequence[DraftAsk]) -> dict[int, int]:
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
        return self._tried_again(asks, none)

    def _tried_again(self, asks: Sequence[DraftAsk], none: dict[int, int]) -> dict[int, int]:
        """Drafts that do not seem to pay, for once in a while that may have changed."""
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
        """What may be lost yet, in plain steps."""
        return _ALLOWED + _SHARE * self._steps - self._balance

    def _gain(self, lengths: Mapping[int, int], rates: Mapping[int, float], lanes: int) -> float:
        """The speed with so many drafts against a plain step's, texts without drafts included."""
        tokens = sum(tokens_per_step(rates[slot], length) - 1 for slot, length in lengths.items())
        draft = (self._costs.draft or 0.0) * (max(lengths.values()) if self.passes else 1)
        cost = 1 + draft + self._costs.verify(sum(lengths.values()) / lanes)
        return (1 + tokens / lanes) / cost


def _at_most(most: int, asks: Sequence[DraftAsk], rates: Mapping[int, float]) -> dict[int, int]:
    """By slot the longest of the lengths whose last draft stands often enough to be worth its row."""
    found = {}
    for ask in asks:
        length = min(most, ask.most)
        while length and rates[ask.slot] ** length < _LEAST:
            length -= 1
        found[ask.slot] = length
    return found
