"""Jump-forward: text that a grammar forces, and what likely stands between the parts of JSON, is a draft."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter, Measured
from gencli.speculative.draft_sampler import DraftSampler
from gencli.speculative.step_cost import StepCostModel
from processors.pipeline import Pipeline

__all__ = ["ForcedTextDrafter"]

_DOUBT = 4.0  # guesses that are taken to have stood as often as they were said to, before the first
_FADING = 0.98


class ForcedTextDrafter(Drafter):
    """Proposes what has to come next, in the tokens that the tokenizer would write it in.

    What only likely comes next it chooses with the noise of the request's draw, and proposes it as long as it
    stands more often than a draft is dear; where drafts cost a pass each, it leaves that to their model.
    Neither where drafts decide the text: how far they go would tell what the draw behind them is, and the
    clock has no say there.
    """

    def __init__(self, pipeline: Pipeline, other: Drafter) -> None:
        """`other` drafts where this one has nothing."""
        self._pipeline, self._other = pipeline, other
        self._requests: dict[int, Request] = {}  # by slot
        self._price, self._lanes = StepCostModel(), 1
        self._said: dict[int, tuple[float, ...]] = {}  # how likely the drafts of a slot are
        self._stood = self._expected = _DOUBT

    def bind(self, chooser: DraftSampler) -> None:
        """See Drafter."""
        self._chooser = chooser

    def handles(self, request: Request) -> bool:
        """Requests with a grammar, unless they want no drafts of this kind."""
        return request.jump == "auto" and request.chain.get("grammar") is not None

    def admit(self, slot: int, request: Request) -> None:
        """See Drafter."""
        self._requests[slot] = request

    def release(self, slot: int) -> None:
        """See Drafter."""
        del self._requests[slot]
        self._said.pop(slot, None)

    def propose(self, asks: Sequence[DraftAsk]) -> list[tuple[int, ...]]:
        """See Drafter. A slot without forced text has no drafts."""
        price = self._price.of(max(self._lanes, len(asks))) * self._expected / self._stood
        return [self._run(ask, price) for ask in asks]

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """See Drafter. What is forced always stands, so only guesses tell something."""
        guesses = [chance for chance in self._said[slot][:proposed] if chance < 1]
        self._expected = self._expected * _FADING + sum(guesses)
        self._stood = self._stood * _FADING + max(accepted - (proposed - len(guesses)), 0)

    def measure(self, step: Measured) -> None:
        """See Drafter."""
        self._lanes = step.lanes
        self._price.add(step.lanes + step.drafted, step.seconds)

    def _run(self, ask: DraftAsk, price: float) -> tuple[int, ...]:
        request = self._requests[ask.slot]
        if request.drafts_decide:
            pairs = self._pipeline.likely(ask.slot)
        else:
            run = self._pipeline.likely(ask.slot, self._chooser.noise(ask.slot))
            least = 1.0 if self._other.passes_for(request) else price
            pairs = tuple(takewhile(lambda pair: pair[1] == 1 or pair[1] >= least, run))
        pairs = pairs[: ask.most]
        self._said[ask.slot] = tuple(chance for _, chance in pairs)
        return tuple(token for token, _ in pairs)
