"""Whether two models mean the same by their token ids."""

from __future__ import annotations

from gencli.text.tokenizer import Tokenizer

__all__ = ["Difference", "first_difference"]

Difference = tuple[int, str, str]  # an id, and what it is to either tokenizer


def first_difference(one: Tokenizer, other: Tokenizer) -> Difference | None:
    """The first id that is another token there; None if there is none. One may have more ids at its end."""
    pairs = zip(one.token_bytes, other.token_bytes, strict=False)
    for token, (here, there) in enumerate(pairs):
        # Markers add nothing to a text: their names tell them apart.
        if here != there or (here == b"" and _name(one, token) != _name(other, token)):
            return token, _name(one, token), _name(other, token)
    return None


def _name(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token], skip_special=False)
