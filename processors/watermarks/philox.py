"""Philox4x32-10 (Salmon et al. 2011), and vLLM's random numbers from key and context with it.

Numbers of 32 bits are int64 tensors. A token's number does not depend on other tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["LARGEST_NOISE", "SMALLEST_NOISE", "derived_key", "gumbel_of", "philox", "state_of", "uniforms"]

_WORD = 2**32 - 1
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_CONTEXT, _TOKEN = 0x574D4358, 0x574D544B  # domain of a block: hash of a context, or number of a token
_BITS = 24  # bits of a uniform number
# Bounds of the Gumbel noise of numbers with 24 bits.
LARGEST_NOISE, SMALLEST_NOISE = 16.64, -2.82

_Words = tuple[Tensor, Tensor, Tensor, Tensor]


def derived_key(key: int, which: str) -> int:
    """Return one of the two keys derived from a key; `which` is "key_a" or "key_b"."""
    digest = hashlib.sha256(which.encode() + key.to_bytes(8, "big")).digest()
    return int.from_bytes(digest[:8], "big")


def philox(counter: _Words, key: tuple[Tensor, Tensor]) -> _Words:
    """Return the four random words of a counter and a key, broadcast.

    On a CPU computed by NumPy: its 160 operations on a few numbers take a third of the time of PyTorch's.
    """
    if counter[0].device.type == "cpu":
        try:
            zero, one, two, three, low, high = (words.numpy() for words in (*counter, *key))
        except RuntimeError:  # PyTorch built without NumPy
            pass
        else:
            first, second, third, fourth = map(
                torch.from_numpy, _rounds((zero, one, two, three), (low, high))
            )
            return first, second, third, fourth
    first, second, third, fourth = _rounds(counter, key)
    return first, second, third, fourth


def _rounds(counter: Any, key: Any) -> Any:
    """Return the words of `philox`, for int64 tensors or NumPy arrays."""
    (zero, one, two, three), (low, high) = counter, key
    for _ in range(_ROUNDS):
        top, bottom = _product(_FACTORS[0], zero)
        upper, lower = _product(_FACTORS[1], two)
        zero, one, two, three = upper ^ one ^ low, lower, top ^ three ^ high, bottom
        low, high = (low + _STEPS[0]) & _WORD, (high + _STEPS[1]) & _WORD
    return zero, one, two, three


def _product(factor: int, word: Any) -> tuple[Any, Any]:
    """Return the upper and lower 32 bits of the product of two 32-bit words; int64 holds all but its sign."""
    product = word * factor
    return (product >> 32) & _WORD, product & _WORD


def state_of(key: Tensor, context: Tensor) -> tuple[Tensor, ...]:
    """Return the five state words [R] for the numbers of tokens after contexts [R, W].

    key [R] int64 has the 64 bits of each row's key; ids of -1 pad a context that is shorter than W.
    """
    low, high = key & _WORD, (key >> 32) & _WORD
    zero = torch.zeros_like(key)
    state: _Words = (zero + _CONTEXT, zero + context.shape[1], zero, zero)
    columns: Sequence[Tensor] = (context & _WORD).unbind(1)
    for first in range(0, len(columns), 4):
        block = list(columns[first : first + 4])
        block += [zero + (_WORD - place) for place in range(len(block), 4)]
        mixed = [word ^ other for word, other in zip(state, block, strict=True)]
        state = philox((mixed[0], mixed[1], mixed[2], mixed[3]), (low ^ first, high))
    return (*state[:3], low ^ state[3], high ^ _TOKEN)


def uniforms(state: Sequence[Tensor], ids: Tensor) -> Tensor:
    """Return the uniform numbers in (0, 1) of ids, float64 with the value of a float32, broadcast.

    `state`: the five words by row or by id, from `state_of`.
    """
    first, second, third, low, high = state
    words = philox((ids >> 2, first, second, third), (low, high))
    word, place = words[0], ids & 3
    for index in range(1, 4):
        word = torch.where(place == index, words[index], word)
    found: Tensor = ((word >> (32 - _BITS)) + 1).double() / (2**_BITS + 1)
    return found.float().double()


def gumbel_of(uniform: Tensor) -> Tensor:
    """Return the Gumbel noise -ln(-ln u) in float64, for uniform numbers u."""
    return -torch.log(-torch.log(uniform))
