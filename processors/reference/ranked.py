"""References of the stages that truncate by the order of the tokens. They define the correct result."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate

from processors.catalog.ranked import MinKParams, TfsParams, TopHParams, TypicalParams
from processors.reference.view import View, exp_all, masked, ranking

__all__ = ["TWINS", "min_k", "tfs", "top_h", "typical"]


def top_h(logits: list[float], params: TopHParams, view: View) -> list[float]:
    """Keep the most likely tokens while their entropy terms sum up to at most h of all terms."""
    order, weights = ranking(logits), exp_all(logits)
    first = order[: params.candidates]
    total = math.fsum(weights[token] for token in (first if params.renormalise else order))
    shares = [weights[token] / total if total else 0.0 for token in first]
    sums = list(accumulate(-share * math.log(share) if share else 0.0 for share in shares))
    count = sum(
        bool(share) and entropy <= params.h * sums[-1] for share, entropy in zip(shares, sums, strict=True)
    )
    return masked(logits, order[max(count, params.keep) :])


def min_k(logits: list[float], params: MinKParams, view: View) -> list[float]:
    """Keep the tokens before the steepest fall of the sorted logits, and tau for each unit of their range."""
    order = ranking(logits)
    values = [logits[token] for token in order if logits[token] > -math.inf]
    if not values:
        return logits
    extent = values[0] - values[-1] + 1e-8
    falls = [(values[i] - values[i + 1]) / ((i + 1) * extent) for i in range(len(values) - 1)]
    cliff = falls.index(max(falls)) + 1 if falls else 1
    assert params.tau is not None
    count = int(min(max(cliff, params.tau / extent), len(values)))
    least = values[count - 1]
    return masked(logits, order[max(params.keep, sum(value >= least for value in values)) :])


def typical(logits: list[float], params: TypicalParams, view: View) -> list[float]:
    """Keep the tokens whose surprise is closest to the entropy until their probabilities sum up to p."""
    weights = exp_all(logits)
    total = math.fsum(weights)
    if not total:
        return logits
    top = max(logits)
    entropy = (
        math.log(total) - math.fsum(w * (x - top) for w, x in zip(weights, logits, strict=True) if w) / total
    )
    distances = [abs(math.log(total) - (logit - top) - entropy) for logit in logits]
    order = sorted(range(len(logits)), key=lambda token: (distances[token], -logits[token], token))
    bound, count, mass = params.p * total, 0, 0.0
    for token in order:
        after = mass + weights[token]
        stays = {"inclusive": mass < bound, "strict": mass <= bound, "exclusive": after < bound}
        if not stays[params.boundary]:
            break
        count, mass = count + 1, after
    if params.ties == "keep":
        limit = distances[order[max(count, 1) - 1]]
        count = sum(distance <= limit for distance in distances)
    return masked(logits, order[max(count, params.keep) :])


def tfs(logits: list[float], params: TfsParams, view: View) -> list[float]:
    """Keep the most likely tokens up to a share z of the curvature of the sorted probabilities."""
    order, weights = ranking(logits), exp_all(logits)
    q = [weights[token] for token in order if logits[token] > -math.inf]
    sums = list(accumulate(abs(q[i] - 2 * q[i + 1] + q[i + 2]) for i in range(len(q) - 2)))
    if not sums or not sums[-1]:
        return logits
    bends = sum(bend <= params.z * sums[-1] for bend in sums)
    return masked(logits, order[max(bends + (params.style == "centred"), params.keep) :])


TWINS: dict[str, Callable[..., list[float]]] = {
    "top_h": top_h,
    "min_k": min_k,
    "typical": typical,
    "tfs": tfs,
}
