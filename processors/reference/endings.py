"""References of length_decay and length_boost."""

from __future__ import annotations

import math
from collections.abc import Callable

from processors.catalog.endings import LengthBoostParams, LengthDecayParams
from processors.reference.view import View, finite

__all__ = ["TWINS", "length_boost", "length_decay"]

_MOST = 1e200


def length_decay(logits: list[float], params: LengthDecayParams, view: View) -> list[float]:
    """x = x + |x| * (factor^steps - 1) for end-of-text ids, steps counted from the start."""
    assert params.decay is not None
    start, factor = params.decay
    steps = len(view.output) - start
    if steps <= 0:
        return logits
    new = list(logits)
    for token in set(view.eos_ids):
        grown = logits[token] + abs(logits[token]) * (_power(factor, steps) - 1)
        new[token] = finite(logits[token], grown)
    return new


def length_boost(logits: list[float], params: LengthBoostParams, view: View) -> list[float]:
    """x = x + boost * (n / 10)^power for end-of-text ids after n output tokens."""
    text = view.text((*view.prompt, *view.output)) if params.after else b""
    if params.after and not text.endswith(tuple(map(str.encode, params.after))):
        return logits
    new = list(logits)
    for token in set(view.eos_ids):
        boost = params.boost * _power(len(view.output) / 10, params.power)
        new[token] = finite(logits[token], logits[token] + boost)
    return new


def _power(base: float, exponent: float) -> float:
    try:
        return min(math.pow(base, exponent), _MOST)
    except OverflowError:
        return _MOST


TWINS: dict[str, Callable[..., list[float]]] = {"length_decay": length_decay, "length_boost": length_boost}
