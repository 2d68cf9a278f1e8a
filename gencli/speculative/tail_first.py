"""A draft model looks at the end of a long text, and reads all of it once its drafts have stood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter
from gencli.speculative.costs import Acceptance
from gencli.speculative.draft_sampler import DraftSampler

__all__ = ["TailFirstDrafter"]

_GLANCE = 16  # tokens at the end of a text, which cost a few drafts
_PROVEN = 0.25  # the share of drafts that has to stand, before a text is worth reading


@dataclass(slots=True)
class _Text:
    """The drafter has been shown the text of a slot from `start` to `end`."""

    request: Request
    start: int = 0
    end: int = 0


class TailFirstDrafter(Drafter):
    """Holds down what a drafter reads in vain: long prompts, and texts that it has not seen for long.

    It is shown their last tokens alone until a quarter of its drafts stand in this run, and the whole from
    then on. What has a fixed number of drafts, as where drafts decide the text, is read at once.
    """

    def __init__(self, inner: Drafter) -> None:
        self._inner, self.passes, self.notices = inner, inner.passes, inner.notices
        self._texts: dict[int, _Text] = {}
        self._acceptance = Acceptance(weight=4, fading=0.98)

    def bind(self, chooser: DraftSampler) -> None:
        """See Drafter."""
        self._inner.bind(chooser)

    def handles(self, request: Request) -> bool:
        """See Drafter."""
        return self._inner.handles(request)

    def admit(self, slot: int, request: Request) -> None:
        """See Drafter."""
        self._texts[slot] = _Text(request)
        self._inner.admit(slot, request)

    def release(self, slot: int) -> None:
        """See Drafter."""
        del self._texts[slot]
        self._inner.release(slot)

    def trim(self) -> None:
        """See Drafter."""
        self._inner.trim()

    def propose(self, asks: Sequence[DraftAsk]) -> Sequence[Sequence[int]]:
        """See Drafter."""
        starts = [self._start(ask) for ask in asks]
        shown = [
            replace(ask, tokens=ask.tokens[start:]) if start else ask
            for ask, start in zip(asks, starts, strict=True)
        ]
        runs = self._inner.propose(shown)
        self.is_reading = self._inner.is_reading
        return runs

    def observe(self, slot: int, *, proposed: int, accepted: int) -> None:
        """See Drafter."""
        self._acceptance.add(proposed=proposed, accepted=accepted)
        self._inner.observe(slot, proposed=proposed, accepted=accepted)

    def _start(self, ask: DraftAsk) -> int:
        """From where on the drafter is shown the text."""
        text, length = self._texts[ask.slot], len(ask.tokens)
        is_behind, text.end = length - text.end > _GLANCE, length
        start = text.start
        if text.request.num_drafts is not None or self._acceptance.rate(0.0) >= _PROVEN:
            start = 0
        elif is_behind:
            start = length - _GLANCE
        if start != text.start:  # to the drafter it is another text
            text.start = start
            self._inner.release(ask.slot)
            shown = replace(text.request, prompt_ids=tuple(ask.tokens[start:])) if start else text.request
            self._inner.admit(ask.slot, shown)
        return start
