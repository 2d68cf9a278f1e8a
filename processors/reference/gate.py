"""Reference of xtc. It defines the correct result."""

from __future__ import annotations

import math
from collections.abc import Callable

from processors.catalog.gate import XtcParams
from processors.reference.samplers import uniform
from processors.reference.view import View, exempt, exp_all, finite, masked, ranking

__all__ = ["TWINS", "xtc"]

_XTC = 3  # stream of its random number


def xtc(logits: list[float], params: XtcParams, view: View) -> list[float]:
    """Exclude all tokens that reach the threshold except the least likely; or average over both cases."""
    weights, spared = exp_all(logits), exempt(params.exempt, view)
    total = math.fsum(weights)
    if not total:
        return logits
    threshold = max(logits) + math.log(params.threshold) + math.log(total)
    top = [
        x
        for x in ranking(logits)
        if logits[x] > threshold or (logits[x] == threshold and params.compare == "ge")
    ]
    if params.on_exempt == "uncount":
        top = [token for token in top if token not in spared]
    last = min((logits[token] for token in top), default=math.inf)
    stays = next((token for token in top if logits[token] == last), None)  # ties by lowest id
    gone = [x for x in top if logits[x] > last or (params.ties == "cut" and x != stays)]
    if params.on_exempt == "skip" and spared.intersection(gone):
        return logits
    gone = [token for token in gone if token not in spared]
    if sum(logit > -math.inf for logit in logits) - len(gone) < params.keep:
        return logits
    if params.mode == "roll":
        acts = uniform(view.seed, len(view.output), _XTC, 0) < params.probability
        return masked(logits, gone) if acts else logits
    share = math.fsum(weights[token] for token in gone) / total
    left = 1 - params.probability
    if not left:
        return masked(logits, gone)
    shift = math.log(left * (1 - share) / (1 - left * share))
    return [finite(x, x + shift) if token in gone else x for token, x in enumerate(logits)]


TWINS: dict[str, Callable[..., list[float]]] = {"xtc": xtc}
