"""`predict_next`: forced tokens and, in JSON, probable separators, as draft tokens without a model."""

from __future__ import annotations

import math

from processors.base import Noise
from processors.grammar.state.json_statistics import SeparatorModel
from processors.grammar.state.spot import Spot

__all__ = ["predict_next"]

_LIMIT = 32  # most tokens predicted
_MIN_PROBABILITY = 0.1  # lowest joint probability of the guesses


def predict_next(
    spot: Spot, separators: SeparatorModel | None, noise: Noise | None = None
) -> tuple[tuple[int, float], ...]:
    """Return pairs (token, probability) that come next: forced tokens and, in JSON, guessed separators.

    A pair's probability is that of its token and all tokens before it; 1 up to the first guess. Without
    `separators` nothing is guessed. The spot has to be new; it is left unchanged.

    `noise(k, ids)` is the Gumbel noise of the k-th next token. It breaks ties between separators with similar
    counts, as in the sampler between tokens with similar logits.
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
    """Accept the most probable token that starts with the forced bytes; return its probability, 0 if none."""
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
