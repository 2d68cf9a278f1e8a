"""The score of a text, and the best one that a text which is not finished can still reach."""

from __future__ import annotations

__all__ = ["best_reachable", "length_score", "rounded"]


def length_score(logprob: float, length: int, penalty: float) -> float:
    """The sum of a text's logprobs divided by its length ** penalty; length in tokens, EOS included.

    A text without tokens, which only an interrupt leaves, is scored as if it had one.
    """
    return float(logprob / max(length, 1) ** penalty)


def best_reachable(logprob: float, length: int, most: int, penalty: float) -> float:
    """The highest score of any text that continues one of `length` tokens, up to `most` tokens.

    No logprob is above 0, so the sum can only fall: the best continuation loses nothing and has the
    length that divides by most. A positive penalty favours the longest text, a negative one the shortest.
    """
    return length_score(logprob, most if penalty > 0 else length + 1, penalty)


def rounded(value: float) -> float:
    """The value with four significant digits, as scores are compared at the end and as they are written.

    The digits below depend, also in float32, on what is computed in the same forward pass.
    """
    return float(f"{value:.4g}")
