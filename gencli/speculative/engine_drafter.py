"""All drafters of an engine as one: the grammars' forced text, then the one that was asked for."""

from __future__ import annotations

from gencli.speculative.base import Drafter
from gencli.speculative.draft_sampler import Chooser
from gencli.speculative.fallback import FirstDrafter
from gencli.speculative.forced_text import JumpDrafter
from processors.history import History
from processors.pipeline import Pipeline
from processors.sampler import Sampler

__all__ = ["every_drafter"]


def every_drafter(
    drafter: Drafter | None, pipeline: Pipeline, sampler: Sampler, history: History
) -> FirstDrafter:
    """They choose from their logits as the engine does from the target's."""
    asked = drafter or FirstDrafter(())
    every = FirstDrafter([JumpDrafter(pipeline, asked), asked])
    every.bind(Chooser(pipeline, sampler, history))
    return every
