"""References of the stages that flatten or sharpen a distribution. They define the correct result."""

from __future__ import annotations

import math
from collections.abc import Callable

from processors.catalog import TemperatureParams
from processors.catalog.scale import DynamicTemperatureParams, EdtParams, SmoothingParams
from processors.reference.stages import temperature
from processors.reference.view import View, exp_all, finite

__all__ = ["TWINS", "dynamic_temperature", "edt", "smoothing"]


def dynamic_temperature(logits: list[float], params: DynamicTemperatureParams, view: View) -> list[float]:
    """Divide by a temperature between two bounds, which rises with the entropy."""
    params = params.around(1.0) if params.is_relative else params
    count = sum(logit > -math.inf for logit in logits)
    if count < 2 or params.min is None or params.max is None:
        return logits
    share = min(_entropy(logits) / math.log(count), 1.0) ** params.exponent
    return _divided(logits, params.min + (params.max - params.min) * share, view)


def edt(logits: list[float], params: EdtParams, view: View) -> list[float]:
    """Divide by t0 * 0.8^(theta / entropy)."""
    if sum(logit > -math.inf for logit in logits) < 2:
        return logits
    entropy, t0 = _entropy(logits), 1.0 if params.t0 is None else params.t0
    return _divided(logits, t0 * 0.8 ** (params.theta / entropy) if entropy else 0.0, view)


def smoothing(logits: list[float], params: SmoothingParams, view: View) -> list[float]:
    """Replace the distance to the largest logit by a polynomial of it."""
    top, square, cube = max(logits), (3 - params.curve) / 2, (params.curve - 1) / 2
    return [
        finite(x, top - params.factor * (x - top) ** 2 * (square - cube * (x - top))) if x > -math.inf else x
        for x in logits
    ]


def _entropy(logits: list[float]) -> float:
    """Return the entropy in nats."""
    weights = exp_all(logits)
    total = math.fsum(weights)
    return max(0.0, -math.fsum(w / total * math.log(w / total) for w in weights if w / total > 0))


def _divided(logits: list[float], heat: float, view: View) -> list[float]:
    """Return the logits at this temperature; at 0 only the first maximum has a positive probability."""
    if heat > 0:
        return temperature(logits, TemperatureParams(heat), view)
    first = logits.index(max(logits))
    return [0.0 if i == first else finite(logit, -math.inf) for i, logit in enumerate(logits)]


TWINS: dict[str, Callable[..., list[float]]] = {
    "dynamic_temperature": dynamic_temperature,
    "edt": edt,
    "smoothing": smoothing,
}
