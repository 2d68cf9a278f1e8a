"""Jump-forward: draft the text that a grammar or a stage forces, and JSON separators that are likely next."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter, Measured
from gencli.speculative.costs import StepCostModel
from gencli.speculative.draft_sampler import DraftSampler
from processors.pipeline import Pipeline

__all__ = ["ForcedTextDrafter"]

_FORCING = ("force", "reasoning_budget", "grammar")  # stages that predict tokens
_PRIOR = 4.0  # weight of the prior belief, in accepted guesses, that stated probabilities are right
_DECAY = 0.98  # weight of past guesses, with each new observation


class ForcedTextDrafter(Drafter):
    """Proposes the tokens that a grammar or a stage forces, in the tokenizer's canonical spelling.

    Likely tokens follow, chosen with the noise of the request's draw, while their acceptance probability
    exceeds their cost (see StepCostModel). If an autoregressive drafter serves the request, it drafts these.
    Where `Request.drafts_decide` (rejection and lossy verification), all likely tokens are proposed, chosen
    without the noise: there the draft length must not depend on the noise or on timing.
    """

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
        self._expected = self._expected * _DECAY + sum(guesses)
        self._accepted = self._accepted * _DECAY + max(accepted - (proposed - len(guesses)), 0)

    def measure(self, step: Measured) -> None:
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
