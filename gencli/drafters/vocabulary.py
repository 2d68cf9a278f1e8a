"""Whether two models mean the same by their token ids."""

from __future__ import annotations

from gencli.errors import ModelError
from gencli.tokenizer import Tokenizer

__all__ = ["Difference", "first_difference", "require_same"]

Difference = tuple[int, str, str]  # an id, and what it is to either tokenizer


def first_difference(one: Tokenizer, other: Tokenizer) -> Difference | None:
    """The first id that is another token there; None if there is none. One may have more ids at its end."""
    pairs = zip(one.token_bytes, other.token_bytes, strict=False)
    for token, (here, there) in enumerate(pairs):
        # Markers add nothing to a text: their names tell them apart.
        if here != there or (here == b"" and _name(one, token) != _name(other, token)):
            return token, _name(one, token), _name(other, token)
    return None


def require_same(target: Tokenizer, draft: Tokenizer, *, names: tuple[str, str]) -> None:
    """Raise ModelError naming the first id that differs."""
    found = first_difference(target, draft)
    if found is not None:
        token, here, there = found
        raise ModelError(
            f"{names[1]} cannot draft for {names[0]}: their vocabularies differ. Token {token} is "
            f"{there!r} to {names[1]} and {here!r} to {names[0]}.",
            hint="A draft model needs the target's vocabulary; ngram and suffix need no model.",
        )


def _name(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token], skip_special=False)
