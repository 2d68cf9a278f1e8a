"""References of the stages that decide how a text begins and ends. They define the correct result."""

from __future__ import annotations

import math
from collections.abc import Callable

from processors.catalog.constrain import BeginSuppressParams, EosAboveParams
from processors.reference.view import View, exp_all, masked

__all__ = ["TWINS", "begin_suppress", "eos_above"]


def begin_suppress(logits: list[float], params: BeginSuppressParams, view: View) -> list[float]:
    """Mask the listed ids while the output is empty."""
    return masked(logits, () if view.output else params.ids)


def eos_above(logits: list[float], params: EosAboveParams, view: View) -> list[float]:
    """Mask all ids but the end-of-text ids if one of those is more probable than p."""
    weights = exp_all(logits)
    bound = params.p * math.fsum(weights)
    if not any(weights[token] > bound for token in view.eos_ids):
        return logits
    return masked(logits, set(range(len(logits))).difference(view.eos_ids))


TWINS: dict[str, Callable[..., list[float]]] = {"begin_suppress": begin_suppress, "eos_above": eos_above}
