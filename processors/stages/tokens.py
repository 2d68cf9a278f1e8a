"""Functions shared by stages: token ids named by a request, and edits of single logits."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import torch
from torch import Tensor

from processors.base import Admission, Env
from processors.errors import TokenError

__all__ = ["HIGHEST", "LOWEST", "checked", "edit", "exempt_ids", "token_id"]

HIGHEST = torch.finfo(torch.float32).max
LOWEST = torch.finfo(torch.float32).min


def checked(ids: Iterable[int], env: Env, what: str) -> tuple[int, ...]:
    """Return the ids. TokenError for one outside the vocabulary of the model or the tokenizer."""
    limit = env.vocab_size if env.vocabulary is None else min(env.vocab_size, env.vocabulary.vocab_size)
    ids = tuple(ids)
    for token in ids:
        if not 0 <= token < limit:
            raise TokenError(f"{what} names token {token}, but ids go from 0 to {limit - 1}.")
    return ids


def token_id(key: int | str, env: Env, what: str) -> int:
    """Return the id of a key: an id, or a text that is exactly one token. TokenError for other keys."""
    if isinstance(key, int):
        return checked((key,), env, what)[0]
    if env.vocabulary is None:
        raise TokenError(f"{what} names the text {key!r}, but there is no tokenizer. Give its token id.")
    ids = env.vocabulary.encode(key, special=False)
    if len(ids) != 1:
        shown = " + ".join(f"{env.vocabulary.token_bytes[i].decode(errors='replace')!r} ({i})" for i in ids)
        raise TokenError(f"{what} names the text {key!r}, which is {len(ids)} tokens: {shown or 'none'}.")
    return checked(ids, env, what)[0]


def exempt_ids(keys: Iterable[int | str], env: Env, request: Admission, what: str) -> set[int]:
    """Return the ids of a list of exempt tokens, given as keywords, ids or texts.

    `special` are the special tokens, `eos` the end-of-text ids, `stop` these and the request's stop ids,
    `newline` all tokens with a line feed. TokenError for a text that is not one token, and for an id outside
    the vocabulary.
    """
    ids: set[int] = set()
    for key in keys:
        if key == "special":
            ids.update(env.vocabulary.special_ids if env.vocabulary else ())
        elif key in ("eos", "stop"):
            ids.update(env.eos_ids, request.stop_ids if key == "stop" else ())
        elif key == "newline":
            ids.update(_newlines(env))
        else:
            ids.add(token_id(key, env, f"{what}: exempt"))
    return ids


@lru_cache(maxsize=4)
def _newlines(env: Env) -> tuple[int, ...]:
    known = env.vocabulary.token_bytes if env.vocabulary else ()
    return tuple(token for token, data in enumerate(known) if b"\n" in data)


def edit(logits: Tensor, ids: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """Write float64 values `new` [A, N] to these ids [A, N] of the logits [A, V], in place.

    Infinite logits keep their `old` value, so masked tokens stay masked. Values are clamped to finite
    float32.
    """
    new = torch.where(old.isinf(), old, new.clamp(LOWEST, HIGHEST))
    return logits.scatter_(1, ids, new.float())
