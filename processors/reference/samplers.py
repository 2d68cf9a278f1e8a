"""References of the draws, on one row."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = [
    "greedy",
    "gumbel",
    "gumbel_max",
    "gumbel_max_in_blocks",
    "inverse_cdf",
    "log_sum_exp",
    "mix",
    "rejection",
    "uniform",
]

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_TOKEN, _BLOCK, _ACCEPT, _RESIDUAL = 1, 2, 4, 5


def mix(value: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform(seed: int, position: int, stream: int, number: int) -> float:
    """Return a number in the open interval (0, 1), determined by the arguments."""
    key = mix(mix(seed + position * _GAMMA) + stream * _GAMMA)
    return ((mix(key + number * _GAMMA) >> 12) + 0.5) * 2.0**-52


def gumbel(seed: int, position: int, stream: int, number: int) -> float:
    """Return standard Gumbel noise, -log(-log(u)) for uniform u in (0, 1)."""
    return -math.log(-math.log(uniform(seed, position, stream, number)))


def greedy(logits: Sequence[float]) -> int:
    """Return the token of the largest logit; the lowest id wins a tie."""
    return max(range(len(logits)), key=lambda token: (logits[token], -token))


def gumbel_max(logits: Sequence[float], seed: int, position: int, first: int = 0) -> int:
    """Return argmax(logits + Gumbel noise); ids count from `first`."""
    noisy = [logit + gumbel(seed, position, _TOKEN, first + i) for i, logit in enumerate(logits)]
    return first + greedy(noisy)


def gumbel_max_in_blocks(logits: Sequence[float], seed: int, position: int, block: int = 512) -> int:
    """Draw a block by its log-sum-exp, then a token inside it: the same distribution as gumbel_max.

    The maximum of Gumbel-perturbed logits is Gumbel around their log-sum-exp, and independent of which of
    them attains it (Maddison, Tarlow, Minka 2014).
    """
    blocks = [logits[start : start + block] for start in range(0, len(logits), block)]
    sums = [log_sum_exp(part) + gumbel(seed, position, _BLOCK, i) for i, part in enumerate(blocks)]
    chosen = greedy(sums)
    return gumbel_max(blocks[chosen], seed, position, first=chosen * block)


def log_sum_exp(logits: Sequence[float]) -> float:
    """Return the log of the sum of exponentials; -inf if all are masked."""
    top = max(logits)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(x - top) for x in logits))


def inverse_cdf(logits: Sequence[float], seed: int, position: int) -> int:
    """Return the first id whose cumulative weight exceeds u times the sum, for one uniform number u."""
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    target = uniform(seed, position, _TOKEN, 0) * math.fsum(weights)
    mass, last = 0.0, 0
    for token, weight in enumerate(weights):
        mass += weight
        if weight > 0:
            last = token
        if weight > 0 and mass > target:
            return token
    return last


def rejection(
    target: Sequence[Sequence[float]],
    drafts: Sequence[int],
    drawn_from: Sequence[Sequence[float] | None],
    seed: int,
    position: int,
) -> list[int]:
    """Return the accepted drafts of one request and one more token (Leviathan et al. 2023).

    `target` has the logits of each position, one more than there are drafts. `drawn_from` has the logits that
    each draft was sampled from; None for a certain draft.
    """
    for offset, (draft, source) in enumerate(zip(drafts, drawn_from, strict=True)):
        here = position + offset
        p = _softmax(target[offset])
        q = _softmax(source) if source else [float(token == draft) for token in range(len(p))]
        if uniform(seed, here, _ACCEPT, 0) * q[draft] >= p[draft]:
            rest = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
            weights = rest if any(rest) else p
            logits = [math.log(weight) if weight else -math.inf for weight in weights]
            replaced = mix(mix(seed + here * _GAMMA) + _RESIDUAL * _GAMMA)
            return [*drafts[:offset], gumbel_max_in_blocks(logits, replaced, here)]
    return [*drafts, gumbel_max(target[-1], seed, position + len(drafts))]


def _softmax(logits: Sequence[float]) -> list[float]:
    total = log_sum_exp(logits)
    return [math.exp(logit - total) for logit in logits]
