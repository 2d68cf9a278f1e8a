"""What comes next in a document: what is forced, and in JSON, what likely stands between its parts."""

from __future__ import annotations

import math

from processors.base import Noise
from processors.grammar.backends.base import Matcher
from processors.grammar.state.forced_tokens import CanonicalTokenizer
from processors.grammar.state.json_statistics import JsonContext, SeparatorModel

__all__ = ["predict_next"]

_LIMIT = 32  # tokens
_LEAST = 0.1  # how likely all guesses together have to be


def predict_next(
    matcher: Matcher,
    speller: CanonicalTokenizer,
    text: bytes,
    habits: SeparatorModel | None,
    noise: Noise | None = None,
) -> tuple[tuple[int, float], ...]:
    """The tokens that are forced behind `text`, and in JSON, whose `habits` are known, likely ones between.

    Each comes with how likely it and all before it are, 1 for what is forced from here.

    `noise` is what the request's draw adds to the logits so many tokens from here: between tokens that the
    text has had about as often, it decides as it does between those that the model finds as likely. The
    matcher is afterwards what it was.
    """
    walk, sure, found = _Walk(matcher, speller, text, habits), 1.0, list[tuple[int, float]]()
    try:
        while sure >= _LEAST and len(found) < _LIMIT and not matcher.is_complete():
            forced = matcher.forced()
            if run := speller.spell(walk.text, forced):
                if not all(map(walk.go, run)):
                    break
            else:
                sure *= walk.guess(forced, noise)
            found += [(token, sure) for token in walk.tokens[len(found) :]]
        return tuple(pair for pair in found[:_LIMIT] if pair[1] >= _LEAST)
    finally:
        matcher.rollback(len(walk.tokens))


class _Walk:
    """Goes on in a matcher, and knows what it has gone."""

    def __init__(
        self, matcher: Matcher, speller: CanonicalTokenizer, text: bytes, habits: SeparatorModel | None
    ) -> None:
        self.tokens: list[int] = []
        self.text = text
        self._matcher, self._speller, self._habits = matcher, speller, habits
        self._signs = habits.signs if habits else JsonContext()

    def go(self, token: int) -> bool:
        """Whether the token is legal; the walk is then behind it."""
        if not self._matcher.accept(token):
            return False
        self.tokens.append(token)
        self.text = self._speller.join(self.text, token)
        self._signs = self._signs.after(self._speller.token_bytes[token])
        return True

    def guess(self, forced: bytes, noise: Noise | None) -> float:
        """Go on by the likeliest token that begins with what is forced; how likely it is, 0 without one."""
        if self._habits is None or (self._signs.in_string and not forced):
            return 0.0
        weights, known = self._habits.weights(self._signs), self._speller.token_bytes
        tokens = [token for token in weights if known[token].startswith(forced)]
        marks = noise(len(self.tokens), tokens) if noise and tokens else [0.0] * len(tokens)
        scores = [math.log(weights[token]) + mark for token, mark in zip(tokens, marks, strict=True)]
        ranked = sorted(zip(scores, tokens, strict=True), reverse=True)
        for rank, (score, token) in enumerate(ranked):
            if self.go(token):
                return 1 / sum(math.exp(other - score) for other, _ in ranked[rank:])
        return 0.0
