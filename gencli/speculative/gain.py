"""Expected gain of speculative decoding. Costs are in units of a plain step.

Leviathan, Kalman, Matias 2023: with acceptance rate a per draft token, k draft tokens give
(1 - a^(k+1)) / (1 - a) tokens per step on average.
"""

from __future__ import annotations

__all__ = ["speedup", "tokens_per_step"]


def tokens_per_step(acceptance: float, length: int) -> float:
    """Expected tokens per step with `length` draft tokens, including the one that every step chooses."""
    if acceptance >= 1:
        return length + 1.0
    return float((1 - acceptance ** (length + 1)) / (1 - acceptance))


def speedup(acceptance: float, length: int, *, draft: float, verify: float) -> float:
    """Expected tokens per second relative to plain steps: tokens_per_step / (1 + draft + verify).

    `draft`: cost of drafting all tokens, in plain steps. `verify`: extra cost of verifying them.
    """
    return tokens_per_step(acceptance, length) / (1 + draft + verify)
