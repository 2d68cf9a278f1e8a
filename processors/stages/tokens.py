"""Helpers that stages share: token ids that a request names, and edits of single logits."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from processors.base import Env
from processors.errors import TokenError

__all__ = ["HIGHEST", "LOWEST", "checked", "edit", "token_id"]

HIGHEST = torch.finfo(torch.float32).max
LOWEST = torch.finfo(torch.float32).min


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


def edit(logits: Tensor, ids: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """Write float64 values [A, N] back at these ids [A, N] of the logits [A, V].

    What was infinite stays as it was, so masked stays masked; what is finite stops at the float32 limits.
    """
    new = torch.where(old.isinf(), old, new.clamp(LOWEST, HIGHEST))
    return logits.scatter_(1, ids, new.float())
