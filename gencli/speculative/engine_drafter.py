"""All drafters of an engine as one: the grammars' forced text, then the one that was asked for."""

from __future__ import annotations

from gencli.speculative.base import Drafter
from gencli.speculative.draft_sampler import DraftSampler
from gencli.speculative.fallback import FallbackDrafter
from gencli.speculative.forced_text import ForcedTextDrafter
from processors.history import History
from processors.pipeline import Pipeline
from processors.sampler import Sampler

__all__ = ["make_engine_drafter"]


def make_engine_drafter(
    drafter: Drafter | None, pipeline: Pipeline, sampler: Sampler, history: History
) -> FallbackDrafter:
    """They choose from their logits as the engine does from the target's."""
    asked = drafter or FallbackDrafter(())
    every = FallbackDrafter([ForcedTextDrafter(pipeline, asked), asked])
    every.bind(DraftSampler(pipeline, sampler, history))
    return every
