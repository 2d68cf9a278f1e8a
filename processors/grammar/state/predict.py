"""`predict_next`: forced tokens and, in JSON, likely separators, as draft tokens without a model."""

from __future__ import annotations

import math

from processors.base import Noise
from processors.grammar.state.json_statistics import SeparatorModel
from processors.grammar.state.spot import Spot

__all__ = ["predict_next"]

_LIMIT = 32  # tokens
_MIN_PROBABILITY = 0.1  # lowest joint probability of the guesses


def predict_next(
    spot: Spot, separators: SeparatorModel | None, noise: Noise | None = None
) -> tuple[tuple[int, float], ...]:
    """Return pairs (token, probability) that come next: forced tokens and, in JSON, guessed separators.

    The probability is that of the token and all before it; it is 1 up to the first guess. Without
    `separators` nothing is guessed. The spot, which is new, is left unchanged.

    `noise(k, ids)` is the Gumbel noise of the k-th next token. It breaks ties between separators of about
    equal count as the sampler breaks them between tokens of about equal logits.
    """
    probability, found = 1.0, list[tuple[int, float]]()
    try:
        while probability >= _MIN_PROBABILITY and len(found) < _LIMIT and not spot.matcher.is_complete():
            forced = spot.matcher.forced()
            if run := spot.canonical.tokenize_forced(spot.text, forced):
                if not all(map(spot.accept, run)):
                    break
            else:
                probability *= _guess(spot, separators, forced, noise)
            found += [(token, probability) for token in spot.tokens[len(found) :]]
        return tuple(pair for pair in found[:_LIMIT] if pair[1] >= _MIN_PROBABILITY)
    finally:
        spot.rollback(len(spot.tokens))


def _guess(spot: Spot, separators: SeparatorModel | None, forced: bytes, noise: Noise | None) -> float:
    """Accept the likeliest token that starts with the forced bytes; return its probability, 0 if none."""
    if separators is None or spot.signs is None or (spot.signs.in_string and not forced):
        return 0.0
    weights, known = separators.weights(spot.signs), spot.canonical.token_bytes
    tokens = [token for token in weights if known[token].startswith(forced)]
    noises = noise(len(spot.tokens), tokens) if noise and tokens else [0.0] * len(tokens)
    scores = [math.log(weights[token]) + noise_of for token, noise_of in zip(tokens, noises, strict=True)]
    ranked = sorted(zip(scores, tokens, strict=True), reverse=True)
    for rank, (score, token) in enumerate(ranked):
        if spot.accept(token):
            return 1 / sum(math.exp(other - score) for other, _ in ranked[rank:])
    return 0.0
