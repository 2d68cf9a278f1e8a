"""What requests may name: token ids inside the vocabulary, and texts that are one token."""

from __future__ import annotations

from collections.abc import Iterable

from processors.base import Env
from processors.errors import TokenError

__all__ = ["checked", "token_id"]


def checked(ids: Iterable[int], env: Env, what: str) -> tuple[int, ...]:
    """The same ids; TokenError names one that the model or the tokenizer lacks."""
    limit = env.vocab_size if env.vocabulary is None else min(env.vocab_size, env.vocabulary.vocab_size)
    ids = tuple(ids)
    for token in ids:
        if not 0 <= token < limit:
            raise TokenError(f"{what} names token {token}, but ids go from 0 to {limit - 1}.")
    return ids


def token_id(key: int | str, env: Env, what: str) -> int:
    """The id that a key stands for: itself, or that of a text which is exactly one token."""
    if isinstance(key, int):
        return checked((key,), env, what)[0]
    if env.vocabulary is None:
        raise TokenError(f"{what} names the text {key!r}, but there is no tokenizer. Give its token id.")
    ids = env.vocabulary.encode(key, special=False)
    if len(ids) != 1:
        shown = " + ".join(f"{env.vocabulary.token_bytes[i].decode(errors='replace')!r} ({i})" for i in ids)
        raise TokenError(f"{what} names the text {key!r}, which is {len(ids)} tokens: {shown or 'none'}.")
    return checked(ids, env, what)[0]
