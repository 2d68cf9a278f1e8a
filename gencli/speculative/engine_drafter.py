"""The drafter of an engine: forced text of grammars first, then the requested drafter."""

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
    """Combine jump-forward with `drafter`, and bind both to a sampler with the engine's pipeline."""
    requested = drafter or FallbackDrafter(())
    combined = FallbackDrafter([ForcedTextDrafter(pipeline, requested), requested])
    combined.bind(DraftSampler(pipeline, sampler, history))
    return combined
