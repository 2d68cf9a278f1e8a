"""References of the stages that follow the drawn tokens, and of skew. They define the correct result."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from processors.catalog.feedback import AdaptivePParams, MirostatParams, SkewParams
from processors.reference.samplers import log_sum_exp
from processors.reference.view import LOWEST, View, masked, ranking

__all__ = ["TWINS", "adaptive_p", "mirostat", "skew"]


def mirostat(logits: list[float], params: MirostatParams, view: View) -> list[float]:
    """Keep tokens by mu, which follows the surprise of the drafts before the row."""
    mu = 2 * params.tau
    for before, token in view.earlier:
        left = _cut(before, mu, params.version)
        if before[token] > -math.inf:
            surprise = (log_sum_exp(left) - before[token]) / math.log(2)
            mu -= params.eta * (surprise - params.tau)
    return _cut(logits, mu, params.version)


def _cut(logits: list[float], mu: float, version: int) -> list[float]:
    order = ranking(logits)
    if logits[order[0]] == -math.inf:
        return logits
    count = _zipf_count([logits[token] for token in order], mu)
    if version == 2:
        least = log_sum_exp(logits) - mu * math.log(2)
        count = max(1, sum(logit >= least for logit in logits))
    return masked(logits, order[count:])


def _zipf_count(ranked: list[float], mu: float) -> int:
    """Return how many tokens have a cross-entropy of mu bits under Zipf's law, by the paper's formula."""
    gaps = [a - b for a, b in pairwise(ranked[:100]) if b > -math.inf]
    known = [(math.log((i + 2) / (i + 1)), gap) for i, gap in enumerate(gaps)]
    if not known:
        return 1
    squares = math.fsum(step * step for step, _ in known)
    s, width = math.fsum(step * gap for step, gap in known) / squares, math.log(len(ranked))
    ratio = (s - 1) / -math.expm1((1 - s) * width) if s != 1 else 1 / width
    room = mu * math.log(2) + math.log(ratio)
    if s == 0:  # equal probabilities: the formula keeps one token, or all
        return len(ranked) if room > 0 else 1
    return min(max(1, math.floor(math.exp(min(width, room / s)))), len(ranked))


def adaptive_p(logits: list[float], params: AdaptivePParams, view: View) -> list[float]:
    """Prefer tokens whose probability compensates that of the tokens before."""
    average = params.target
    for before, token in view.earlier:
        chance = math.exp(before[token] - log_sum_exp(before))
        average = params.decay * average + (1 - params.decay) * chance
    if sum(logit > -math.inf for logit in logits) < 2:
        return logits
    wanted = min(max(2 * params.target - average, 0.0), 1.0)
    total = log_sum_exp(logits)
    away = [abs(math.exp(logit - total) - wanted) / 0.3 for logit in logits]
    return [
        5 - 10 * u * u / (1 + u) if logit > -math.inf else logit
        for u, logit in zip(away, logits, strict=True)
    ]


def skew(logits: list[float], params: SkewParams, view: View) -> list[float]:
    """Return the distribution of a draw by inverse CDF whose random number is raised to e^-s."""
    gain, total, found = math.exp(params.s), log_sum_exp(logits), list(logits)
    weights: list[float] = []
    for token in ranking(logits):
        if logits[token] == -math.inf:
            break
        weights.append(math.exp(logits[token] - max(logits)))
        ratio = logits[token] - max(logits) - math.log(math.fsum(weights))  # ln(p / c)
        chance = math.exp(ratio)
        if len(weights) == 1:
            bent = 0.0
        elif chance * max(gain, 1.0) < 1e-9:
            bent = math.log(gain) + ratio
        else:
            bent = math.log(-math.expm1(gain * math.log1p(-chance)))
        cumulative = math.log(math.fsum(weights)) + max(logits) - total
        found[token] = max(bent + gain * cumulative + total, LOWEST)
    return found


TWINS: dict[str, Callable[..., list[float]]] = {
    "mirostat": mirostat,
    "skew": skew,
    "adaptive_p": adaptive_p,
}
