"""Drafters around others: the best of several, the first that has draft tokens, the guard around plugin
drafters; and the text that a grammar or a stage forces.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TypeVar

import torch
from torch import Tensor

from gencli.core.request import Request
from gencli.errors import PluginError
from gencli.speculative.adaptive_drafts import StepCostModel
from gencli.speculative.draft_model import DraftSampler
from gencli.speculative.drafter import (
    DraftAsk,
    Drafter,
    DraftTree,
    Drawn,
    Features,
    MeasuredStep,
    OuterDrafter,
    num_right,
)
from processors.errors import device_fault
from processors.foreign_stages import WrongResult, fault_text, is_interrupt
from processors.history import History
from processors.pipeline import Pipeline
from processors.sampler import Sampler

_PROPOSAL_DECAY = 0.95  # weight of past proposals, with each new one

_Proposals = list[Sequence[int]]  # one per drafter


class AutoDrafter(OuterDrafter):
    """Asks all drafters and returns the proposal of the best one.

    Score of a drafter: number of proposed tokens that matched the text, exponentially decayed. Unused
    proposals are scored too. All texts share one score, except requests with `drafts_decide`, which have
    their own.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        super().__init__(*drafters)
        self._shared_scores = [0.0] * len(drafters)  # matching tokens by drafter, decayed
        self._scores: dict[int, list[float]] = {}  # the scores of a slot, possibly `_shared_scores` itself
        self._pending: dict[int, tuple[int, _Proposals]] = {}  # by slot: length of the text, proposals
        self._chosen: dict[int, Drafter] = {}

    def admit(self, slot: int, request: Request) -> None:
        self._pending.pop(slot, None)
        self._scores[slot] = [0.0] * len(self._inner) if request.drafts_decide else self._shared_scores
        super().admit(slot, request)

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        for ask in asks:  # the last proposals are scored against the tokens generated since
            length, proposals = self._pending.pop(ask.slot, (0, ()))
            generated, scores = tuple(ask.tokens[length:]), self._scores[ask.slot]
            for i, proposal in enumerate(proposals):
                scores[i] = _PROPOSAL_DECAY * scores[i] + num_right(proposal, generated)
        columns = [drafter.propose(asks) for drafter in self._inner]
        return [self._best(ask, [column[i] for column in columns]) for i, ask in enumerate(asks)]

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        self._chosen[slot].observe(slot, proposed=proposed, accepted=accepted)

    def _best(self, ask: DraftAsk, proposals: _Proposals) -> Sequence[int]:
        self._pending[ask.slot] = len(ask.tokens), proposals
        candidates = [i for i, proposal in enumerate(proposals) if proposal]
        if not candidates:
            return ()
        best = max(candidates, key=lambda i: self._scores[ask.slot][i])  # the first of equals
        self._chosen[ask.slot] = self._inner[best]
        return proposals[best]


class FallbackDrafter(OuterDrafter):
    """Asks its drafters in their order, each for the slots that have no drafts yet."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        super().__init__(*drafters)
        self._by_slot: dict[int, tuple[Drafter, ...]] = {}  # drafters that handle the slot's request
        self._proposer: dict[int, Drafter] = {}

    def handles(self, request: Request) -> bool:
        return any(drafter.handles(request) for drafter in self._inner)

    def is_autoregressive_for(self, request: Request) -> bool:
        return any(drafter.is_autoregressive_for(request) for drafter in self._inner)

    def has_trees_for(self, request: Request) -> bool:
        return any(drafter.has_trees_for(request) for drafter in self._inner)

    def taps_for(self, request: Request) -> tuple[int, ...]:
        return next((taps for drafter in self._inner if (taps := drafter.taps_for(request))), ())

    def admit(self, slot: int, request: Request) -> None:
        self._by_slot[slot] = tuple(drafter for drafter in self._inner if drafter.handles(request))
        for drafter in self._by_slot[slot]:
            drafter.admit(slot, request)

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        runs: dict[int, Sequence[int]] = {}
        for drafter in self._inner:
            open_asks = [ask for ask in asks if ask.slot not in runs and drafter in self._by_slot[ask.slot]]
            for ask, run in zip(open_asks, drafter.propose(open_asks) if open_asks else (), strict=True):
                if run:
                    runs[ask.slot], self._proposer[ask.slot] = run, drafter
        return [runs.get(ask.slot, ()) for ask in asks]

    def feed(self, parts: Sequence[Features]) -> None:
        for drafter in self._inner:
            if drafter.taps and (own := [part for part in parts if drafter in self._by_slot[part.slot]]):
                drafter.feed(own)

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        self._proposer[slot].observe(slot, proposed=proposed, accepted=accepted)

    def release(self, slot: int) -> None:
        self._proposer.pop(slot, None)
        for drafter in self._by_slot.pop(slot):
            drafter.release(slot)


def make_engine_drafter(
    drafter: Drafter | None, pipeline: Pipeline, sampler: Sampler, history: History
) -> FallbackDrafter:
    """Combine jump-forward with `drafter`, and bind both to a sampler with the engine's pipeline."""
    requested = drafter or FallbackDrafter(())
    combined = FallbackDrafter([ForcedTextDrafter(pipeline, requested), requested])
    combined.bind(DraftSampler(pipeline, sampler, history))
    return combined


_FORCING = ("force", "reasoning_budget", "grammar")  # stages that predict tokens
_PRIOR = 4.0  # weight of the prior belief, in accepted guesses, that stated probabilities are right
_GUESS_DECAY = 0.98  # weight of past guesses, with each new observation


class ForcedTextDrafter(Drafter):
    """Proposes the tokens that a grammar or a stage forces, in the tokenizer's canonical spelling.

    Likely tokens follow, chosen with the noise of the request's draw, while their acceptance probability
    exceeds their cost (see StepCostModel). If an autoregressive drafter serves the request, it drafts these.
    Where `Request.drafts_decide` (rejection and lossy verification), all likely tokens are proposed, chosen
    without the noise: there the draft length must not depend on the noise or on timing.
    """

    has_trees = False

    def __init__(self, pipeline: Pipeline, other: Drafter) -> None:
        """`other` drafts where this drafter has no draft tokens."""
        self._pipeline, self._other = pipeline, other
        self._requests: dict[int, Request] = {}  # by slot
        self._step_cost, self._lanes = StepCostModel(), 1
        self._probabilities: dict[int, tuple[float, ...]] = {}  # of the last draft tokens, by slot
        self._accepted = self._expected = _PRIOR  # guesses, decayed

    def bind(self, chooser: DraftSampler) -> None:
        self._chooser = chooser

    def handles(self, request: Request) -> bool:
        """Whether the request has a stage that predicts tokens, and allows jump-forward."""
        return request.jump == "auto" and any(request.chain.get(name) for name in _FORCING)

    def admit(self, slot: int, request: Request) -> None:
        self._requests[slot] = request

    def release(self, slot: int) -> None:
        del self._requests[slot]
        self._probabilities.pop(slot, None)

    def propose(self, asks: Sequence[DraftAsk]) -> list[tuple[int, ...]]:
        draft_cost = self._step_cost.draft_cost(max(self._lanes, len(asks)))
        threshold = draft_cost * self._expected / self._accepted  # corrected by the observed acceptance
        return [self._run(ask, threshold) for ask in asks]

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """Count expected and accepted guesses. Forced tokens are always accepted and tell nothing."""
        guesses = [chance for chance in self._probabilities[slot][:proposed] if chance < 1]
        self._expected = self._expected * _GUESS_DECAY + sum(guesses)
        self._accepted = self._accepted * _GUESS_DECAY + max(accepted - (proposed - len(guesses)), 0)

    def measure(self, step: MeasuredStep) -> None:
        self._lanes = step.lanes
        self._step_cost.observe(step.lanes + step.drafted, step.seconds)

    def _run(self, ask: DraftAsk, threshold: float) -> tuple[int, ...]:
        request = self._requests[ask.slot]
        if request.drafts_decide:
            pairs = self._pipeline.predicted(ask.slot)
        else:
            likely = self._pipeline.predicted(ask.slot, self._chooser.noise(ask.slot))
            min_p = 1.0 if self._other.is_autoregressive_for(request) else threshold
            pairs = tuple(takewhile(lambda pair: pair[1] == 1 or pair[1] >= min_p, likely))
        pairs = pairs[: ask.most]
        self._probabilities[ask.slot] = tuple(chance for _, chance in pairs)
        return tuple(token for token, _ in pairs)


T = TypeVar("T")


class ForeignDrafter(Drafter):
    """Wraps a plugin's drafter. Its first fault is added to the notices and switches the drafter off.

    Without its drafts the texts stay the same; under `rejection` their distribution stays the same.
    """

    def __init__(self, drafter: type[Drafter]) -> None:
        """Make the plugin's drafter. Raises PluginError if its constructor fails."""
        self._name = drafter.name
        try:
            self._inner = drafter()
            self.is_autoregressive = bool(self._inner.is_autoregressive)
            self.has_trees = bool(self._inner.has_trees)
            self.notices = tuple(map(str, self._inner.notices))
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise PluginError(
                f"The drafter {drafter.name} is wrong: {fault_text('__init__', error)}."
            ) from error
        self._is_off = False
        self._notices: list[str] = []
        self._width, self._device = 0, torch.device("cpu")

    @property
    def is_reading(self) -> bool:  # type: ignore[override]
        return self._call("is_reading", lambda: bool(self._inner.is_reading), False)

    def bind(self, chooser: DraftSampler) -> None:
        """Bind the drafter; its faults go to the engine's notices."""
        self._notices, self._width, self._device = chooser.notices, chooser.width, chooser.device
        self._call("bind", lambda: self._inner.bind(chooser), None)

    def handles(self, request: Request) -> bool:
        """Whether the drafter handles the request. After a fault: always, so that slots stay consistent."""
        return self._call("handles", lambda: bool(self._inner.handles(request)), True)

    def is_autoregressive_for(self, request: Request) -> bool:
        return self._call(
            "is_autoregressive_for", lambda: bool(self._inner.is_autoregressive_for(request)), False
        )

    def admit(self, slot: int, request: Request) -> None:
        self._call("admit", lambda: self._inner.admit(slot, request), None)

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        none: Sequence[Sequence[int]] = [()] * len(asks)
        return self._call("propose", lambda: self._checked(self._inner.propose(asks), asks), none)

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        self._call("observe", lambda: self._inner.observe(slot, proposed=proposed, accepted=accepted), None)

    def measure(self, step: MeasuredStep) -> None:
        self._call("measure", lambda: self._inner.measure(step), None)

    def release(self, slot: int) -> None:
        self._call("release", lambda: self._inner.release(slot), None)

    def trim(self) -> None:
        self._call("trim", self._inner.trim, None)

    def _call(self, hook: str, call: Callable[[], T], otherwise: T) -> T:
        if self._is_off:
            return otherwise
        try:
            return call()
        except BaseException as error:
            if is_interrupt(error) or device_fault(error):
                raise
            self._is_off = True
            self._notices.append(
                f"The drafter {self._name} is wrong: {fault_text(hook, error)}. "
                "The run continues without its drafts."
            )
            return otherwise

    def _checked(self, runs: object, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        is_list = isinstance(runs, Sequence) and not isinstance(runs, str | bytes)
        if not is_list or len(runs) != len(asks):  # type: ignore[arg-type]
            raise WrongResult(f"propose returned {runs!r:.60}, a list of {len(asks)} lists of ids expected")
        return [self._run(run, ask.most) for run, ask in zip(runs, asks, strict=True)]  # type: ignore[call-overload]

    def _run(self, run: object, limit: int) -> Sequence[int]:
        if run is None:
            return ()
        is_tree = isinstance(run, DraftTree)
        try:
            cut = run[: None if is_tree else limit] if isinstance(run, Sequence) else ("",)
            ids = tuple(map(operator.index, cut))
        except TypeError:
            ids = (-1,)
        if not all(0 <= token < self._width for token in ids):
            raise WrongResult(f"propose returned {run!r:.60}, a list of ids below {self._width} expected")
        if isinstance(run, DraftTree):
            if len(ids) != len(run.parents) or any(not -1 <= up < i for i, up in enumerate(run.parents)):
                raise WrongResult(
                    "propose returned a DraftTree with wrong parents, each before its children expected"
                )
            return run
        if not isinstance(run, Drawn):
            return ids

        def is_distribution(row: object) -> bool:
            if not isinstance(row, Tensor) or row.shape != (self._width,) or row.device != self._device:
                return False
            return row.dtype == torch.float32 and -torch.inf < float(row.amax()) < torch.inf

        sizes = {len(run.tokens), len(run.logits), len(run.probabilities)}
        if len(sizes) > 1 or not all(map(is_distribution, run.logits)):
            raise WrongResult(
                "propose returned Drawn with wrong logits, "
                f"for each token finite ones [{self._width}] float32 on {self._device} expected"
            )
        if not all(isinstance(chance, float) and 0 < chance <= 1 for chance in run.probabilities):
            raise WrongResult("propose returned Drawn with wrong probabilities, above 0 and up to 1 expected")
        return run
