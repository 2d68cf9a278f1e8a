"""Lazy prefill of a draft model: the tail of a long text first, the whole text once drafts are accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter
from gencli.speculative.costs import Acceptance
from gencli.speculative.draft_sampler import DraftSampler

__all__ = ["TailFirstDrafter"]

_TAIL = 16  # tokens at the end of a text; feeding them costs about as much as a few draft tokens
_MIN_ACCEPTANCE = 0.25  # acceptance rate from which on whole texts are prefilled


@dataclass(slots=True)
class _Text:
    """The part of a slot's text, from `start` to `end`, that the drafter has seen."""

    request: Request
    start: int = 0
    end: int = 0


class TailFirstDrafter(Drafter):
    """Limits prefill of a draft model whose drafts may not be accepted.

    A text of which more than 16 tokens are new to the drafter is shown to it by its last 16 tokens alone,
    until the acceptance rate over all texts is 0.25; from then on the whole text is shown. Requests with a
    fixed number of draft tokens are shown whole from the start.
    """

    def __init__(self, inner: Drafter) -> None:
        self._inner, self.is_autoregressive, self.notices = inner, inner.is_autoregressive, inner.notices
        self._texts: dict[int, _Text] = {}
        self._acceptance = Acceptance(weight=4, fading=0.98)

    def bind(self, chooser: DraftSampler) -> None:
        self._inner.bind(chooser)

    def handles(self, request: Request) -> bool:
        return self._inner.handles(request)

    def admit(self, slot: int, request: Request) -> None:
        self._texts[slot] = _Text(request)
        self._inner.admit(slot, request)

    def release(self, slot: int) -> None:
        del self._texts[slot]
        self._inner.release(slot)

    def trim(self) -> None:
        self._inner.trim()

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        starts = [self._start(ask) for ask in asks]
        shown = [
            replace(ask, tokens=ask.tokens[start:]) if start else ask
            for ask, start in zip(asks, starts, strict=True)
        ]
        runs = self._inner.propose(shown)
        self.is_reading = self._inner.is_reading
        return runs

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        self._acceptance.add(proposed=proposed, accepted=accepted)
        self._inner.observe(slot, proposed=proposed, accepted=accepted)

    def _start(self, ask: DraftAsk) -> int:
        """First token of the text that the drafter is shown."""
        text, length = self._texts[ask.slot], len(ask.tokens)
        is_behind, text.end = length - text.end > _TAIL, length
        start = text.start
        if text.request.num_drafts is not None or self._acceptance.rate(0.0) >= _MIN_ACCEPTANCE:
            start = 0
        elif is_behind:
            start = length - _TAIL
        if start != text.start:  # the drafter sees another text
            text.start = start
            self._inner.release(ask.slot)
            shown = replace(text.request, prompt_ids=tuple(ask.tokens[start:])) if start else text.request
            self._inner.admit(ask.slot, shown)
        return start
