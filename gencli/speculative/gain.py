"""What drafts are worth: formulas, with costs in units of a plain step.

Leviathan, Kalman, Matias 2023: if each draft stands with probability a behind those that stand, k drafts
give (1 - a^(k+1)) / (1 - a) tokens a step.
"""

from __future__ import annotations

__all__ = ["speedup", "tokens_per_step"]


def tokens_per_step(acceptance: float, length: int) -> float:
    """Tokens that a step with so many drafts gives, the one that is chosen anyway included."""
    if acceptance >= 1:
        return length + 1.0
    return float((1 - acceptance ** (length + 1)) / (1 - acceptance))


def speedup(acceptance: float, length: int, *, draft: float, verify: float) -> float:
    """Tokens a second against plain steps: `draft` is what all drafts cost, `verify` what their rows do.

    Both are in plain steps, so that a step with drafts takes 1 + draft + verify of them.
    """
    return tokens_per_step(acceptance, length) / (1 + draft + verify)
