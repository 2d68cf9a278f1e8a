"""Compare the vocabularies of two models."""

from __future__ import annotations

from gencli.text.tokenizer import Tokenizer

__all__ = ["Difference", "first_difference"]

Difference = tuple[int, str, str]  # token id, and its text in each tokenizer


def first_difference(one: Tokenizer, other: Tokenizer) -> Difference | None:
    """Return the first id with different tokens; None if there is none. Extra ids at one end do not count."""
    pairs = zip(one.token_bytes, other.token_bytes, strict=False)
    for token, (here, there) in enumerate(pairs):
        # Special tokens have no bytes, so their names are compared.
        if here != there or (here == b"" and _name(one, token) != _name(other, token)):
            return token, _name(one, token), _name(other, token)
    return None


def _name(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token], skip_special=False)
