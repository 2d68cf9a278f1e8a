"""`predict_next`: forced tokens and, in JSON, likely separators, as draft tokens without a model."""

from __future__ import annotations

import math

from processors.base import Noise
from processors.grammar.backends.base import Matcher
from processors.grammar.state.forced_tokens import CanonicalTokenizer
from processors.grammar.state.json_statistics import JsonContext, SeparatorModel

__all__ = ["predict_next"]

_LIMIT = 32  # tokens
_MIN_PROBABILITY = 0.1  # lowest joint probability of the guesses


def predict_next(
    matcher: Matcher,
    canonical: CanonicalTokenizer,
    text: bytes,
    separators: SeparatorModel | None,
    noise: Noise | None = None,
) -> tuple[tuple[int, float], ...]:
    """Return pairs (token, probability) that continue `text`: forced tokens and, in JSON, guessed separators.

    The probability is that of the token and all before it; it is 1 up to the first guess. Without
    `separators` nothing is guessed. The matcher is left unchanged.

    `noise(k, ids)` is the Gumbel noise of the k-th next token. It breaks ties between separators of about
    equal count as the sampler breaks them between tokens of about equal logits.
    """
    walk, probability, found = _Walk(matcher, canonical, text, separators), 1.0, list[tuple[int, float]]()
    try:
        while probability >= _MIN_PROBABILITY and len(found) < _LIMIT and not matcher.is_complete():
            forced = matcher.forced()
            if run := canonical.tokenize_forced(walk.text, forced):
                if not all(map(walk.go, run)):
                    break
            else:
                probability *= walk.guess(forced, noise)
            found += [(token, probability) for token in walk.tokens[len(found) :]]
        return tuple(pair for pair in found[:_LIMIT] if pair[1] >= _MIN_PROBABILITY)
    finally:
        matcher.rollback(len(walk.tokens))


class _Walk:
    """Advances a matcher and records the tokens."""

    def __init__(
        self, matcher: Matcher, canonical: CanonicalTokenizer, text: bytes, separators: SeparatorModel | None
    ) -> None:
        self.tokens: list[int] = []
        self.text = text
        self._matcher, self._canonical, self._separators = matcher, canonical, separators
        self._context = separators.signs if separators else JsonContext()

    def go(self, token: int) -> bool:
        """Accept a token; return whether it is legal."""
        if not self._matcher.accept(token):
            return False
        self.tokens.append(token)
        self.text = self._canonical.join(self.text, token)
        self._context = self._context.after(self._canonical.token_bytes[token])
        return True

    def guess(self, forced: bytes, noise: Noise | None) -> float:
        """Accept the likeliest token that starts with the forced bytes; return its probability, 0 if none."""
        if self._separators is None or (self._context.in_string and not forced):
            return 0.0
        weights, known = self._separators.weights(self._context), self._canonical.token_bytes
        tokens = [token for token in weights if known[token].startswith(forced)]
        noises = noise(len(self.tokens), tokens) if noise and tokens else [0.0] * len(tokens)
        scores = [math.log(weights[token]) + noise_of for token, noise_of in zip(tokens, noises, strict=True)]
        ranked = sorted(zip(scores, tokens, strict=True), reverse=True)
        for rank, (score, token) in enumerate(ranked):
            if self.go(token):
                return 1 / sum(math.exp(other - score) for other, _ in ranked[rank:])
        return 0.0
