"""Jump-forward: text that a grammar forces, but for white space, is a draft."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.drafters.base import DraftAsk, Drafter
from gencli.request import Request
from processors.pipeline import Pipeline

__all__ = ["JumpDrafter"]

_MOST = 32  # tokens at a time


class JumpDrafter(Drafter):
    """Proposes what has to come next, in the tokens that the tokenizer would write it in."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def handles(self, request: Request) -> bool:
        """Requests with a grammar, unless they want no drafts of this kind."""
        return request.jump == "auto" and request.chain.get("grammar") is not None

    def propose(self, asks: Sequence[DraftAsk]) -> list[tuple[int, ...]]:
        """See Drafter. A slot without forced text has no drafts."""
        return [self._pipeline.likely(ask.slot)[: min(ask.most, _MOST)] for ask in asks]
