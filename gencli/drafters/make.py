"""The drafters of a run, by the names that requests know them by."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from gencli.drafters.adaptive import AdaptiveDrafter
from gencli.drafters.auto import AutoDrafter
from gencli.drafters.base import Drafter
from gencli.drafters.first import FirstDrafter
from gencli.drafters.model import ModelDrafter
from gencli.drafters.ngram import NgramDrafter
from gencli.drafters.options import BUILT_IN, NO_DRAFTER
from gencli.drafters.suffix import SuffixDrafter
from gencli.drafters.vocabulary import require_same
from gencli.models.resolve import Loaded, ModelChoice, load

__all__ = ["make_drafter", "model_drafter"]

Clock = Callable[[], float]


def make_drafter(
    name: str, target: Loaded, choice: ModelChoice, *, clock: Clock = time.perf_counter
) -> Drafter:
    """The drafters that cost nothing until they are asked, and the one that is named.

    `choice` says how the target was loaded; a draft model is loaded in the same way. Raises ModelError for a
    model that cannot draft for the target.
    """
    made: dict[str, Drafter] = {
        "ngram": NgramDrafter(),
        "suffix": SuffixDrafter(),
        "auto": AutoDrafter([SuffixDrafter(), NgramDrafter()]),
    }
    if name not in made and name != NO_DRAFTER:
        made[name] = model_drafter(name, target, choice)
    return FirstDrafter([AdaptiveDrafter(drafter, name=key, clock=clock) for key, drafter in made.items()])


def model_drafter(name: str, target: Loaded, choice: ModelChoice) -> Drafter:
    """A model as the drafter of another, or the target's own first layers."""
    if name in BUILT_IN:
        return ModelDrafter(target.runner.first_layers(choice.max_batch))
    draft = load(replace(choice, name=name))
    require_same(target.tokenizer, draft.tokenizer)
    return ModelDrafter(draft.runner)
