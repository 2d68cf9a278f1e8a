"""Jump-forward: text that a grammar forces, and what likely stands between the parts of JSON, is a draft."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.drafters.base import DraftAsk, Drafter
from gencli.drafters.chooser import Chooser
from gencli.request import Request
from processors.pipeline import Pipeline

__all__ = ["JumpDrafter"]


class JumpDrafter(Drafter):
    """Proposes what has to come next, in the tokens that the tokenizer would write it in.

    What only likely comes next it chooses with the noise of the request's draw. Not where drafts decide the
    text: how far they go would tell what the draw behind them is.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._may_know: dict[int, bool] = {}

    def bind(self, chooser: Chooser) -> None:
        """See Drafter."""
        self._chooser = chooser

    def handles(self, request: Request) -> bool:
        """Requests with a grammar, unless they want no drafts of this kind."""
        return request.jump == "auto" and request.chain.get("grammar") is not None

    def admit(self, slot: int, request: Request) -> None:
        """See Drafter."""
        self._may_know[slot] = not request.drafts_decide

    def propose(self, asks: Sequence[DraftAsk]) -> list[tuple[int, ...]]:
        """See Drafter. A slot without forced text has no drafts."""
        return [self._likely(ask.slot)[: ask.most] for ask in asks]

    def _likely(self, slot: int) -> tuple[int, ...]:
        return self._pipeline.likely(slot, self._chooser.noise(slot) if self._may_know[slot] else None)
