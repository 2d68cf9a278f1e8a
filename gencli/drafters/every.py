"""All drafters of an engine as one: the grammars' forced text, then the one that was asked for."""

from __future__ import annotations

from gencli.drafters.base import Drafter
from gencli.drafters.chooser import Chooser
from gencli.drafters.first import FirstDrafter
from gencli.drafters.jump import JumpDrafter
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
