"""References of the stages with a threshold from the row's distribution. They define the correct result."""

from __future__ import annotations

import math
from collections.abc import Callable

from processors.catalog.thresholds import EpsilonParams, EtaParams, PLessParams, TopAParams, TopNSigmaParams
from processors.reference.view import View, exp_all, masked, ranking

__all__ = ["TWINS", "epsilon", "eta", "p_less", "top_a", "top_n_sigma"]


def top_n_sigma(logits: list[float], params: TopNSigmaParams, view: View) -> list[float]:
    """Keep logits within n standard deviations of the largest one."""
    finite = [logit for logit in logits if logit != -math.inf]
    if not finite:
        return logits
    mean = math.fsum(finite) / len(finite)
    squares = math.fsum((logit - mean) ** 2 for logit in finite)
    among = len(finite) - (params.std == "sample")
    sigma = math.sqrt(squares / among) if among else 0.0
    return _above(logits, max(finite) - params.n * sigma, params.keep)


def epsilon(logits: list[float], params: EpsilonParams, view: View) -> list[float]:
    """Keep tokens at least as probable as the cutoff."""
    return _at_least(logits, params.cutoff, params.keep)


def eta(logits: list[float], params: EtaParams, view: View) -> list[float]:
    """Keep tokens at least as probable as the cutoff, or as sqrt(cutoff) exp(-entropy)."""
    entropy = -math.fsum(p * math.log(p) for p in _probabilities(logits) if p > 0)
    return _at_least(logits, min(params.cutoff, math.sqrt(params.cutoff) * math.exp(-entropy)), params.keep)


def top_a(logits: list[float], params: TopAParams, view: View) -> list[float]:
    """Keep tokens at least as probable as a times the largest probability squared."""
    return _at_least(logits, params.a * max(_probabilities(logits)) ** 2, params.keep)


def p_less(logits: list[float], params: PLessParams, view: View) -> list[float]:
    """Keep tokens at least as probable as the mean probability of an order."""
    probabilities = [p for p in _probabilities(logits) if p > 0]
    count = sum(logit > -math.inf for logit in logits)
    mean = math.fsum(p**params.order for p in probabilities) ** (1 / (params.order - 1)) if count else 0.0
    if params.norm:
        mean = (count * mean - 1) / (count - 1) if count > 1 else 0.0
    return _at_least(logits, mean, params.keep)


def _probabilities(logits: list[float]) -> list[float]:
    weights = exp_all(logits)
    total = math.fsum(weights)
    return [weight / total if total else 0.0 for weight in weights]


def _at_least(logits: list[float], least: float, keep: int) -> list[float]:
    """Keep tokens with a probability of at least `least`, in the log domain, and the `keep` best ones."""
    weights = exp_all(logits)
    total = math.fsum(weights)
    threshold = max(logits) + math.log(least * total) if least > 0 and total else -math.inf
    return _above(logits, threshold, keep)


def _above(logits: list[float], threshold: float, keep: int) -> list[float]:
    """Keep logits from the threshold on, the largest ones, and at least `keep`."""
    threshold = min(threshold, max(logits))
    count = sum(logit >= threshold for logit in logits)
    return masked(logits, ranking(logits)[max(count, keep) :])


TWINS: dict[str, Callable[..., list[float]]] = {
    "top_n_sigma": top_n_sigma,
    "epsilon": epsilon,
    "eta": eta,
    "top_a": top_a,
    "p_less": p_less,
}
