"""Randomness as a function of (request seed, position, stream, id): no state, the same bits anywhere.

The mixer is the finaliser of SplitMix64 (Steele, Lea, Flood 2014) on 64-bit integers that wrap. Python
integers and int64 tensors go through the same steps, so either side can check the other. Changing any
constant changes every user's text: golden values stand in the tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from math import log
from typing import overload

import torch
from torch import Tensor

__all__ = [
    "Stream",
    "derive",
    "few_gumbel",
    "gumbel",
    "mix",
    "row_keys",
    "signed",
    "stream_key",
    "token_hash",
    "uniform",
]

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15  # odd, close to 2**64 / golden ratio
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_BITS = 52  # (m + 0.5) / 2**52 is exact in float64 for every m, and never 0 or 1


class Stream(IntEnum):
    """What a draw is for; draws of different streams are independent."""

    TOKEN = 1
    BLOCK = 2
    XTC = 3
    ACCEPT = 4
    RESIDUAL = 5
    DRAFT = 6


@overload
def mix(value: int) -> int: ...
@overload
def mix(value: Tensor) -> Tensor: ...
def mix(value: int | Tensor) -> int | Tensor:
    """Scramble 64 bits; a bijection. Tensors are int64 and stay signed, integers come back unsigned."""
    if isinstance(value, int):
        value &= _MASK
        value = ((value ^ (value >> 30)) * _FIRST) & _MASK
        value = ((value ^ (value >> 27)) * _SECOND) & _MASK
        return value ^ (value >> 31)
    value = (value ^ _shifted(value, 30)) * signed(_FIRST)
    value = (value ^ _shifted(value, 27)) * signed(_SECOND)
    return value ^ _shifted(value, 31)


def derive(seed: int, key: int | str) -> int:
    """The seed of a part of a run: a row by its id or index, a sample by its number. Unsigned 64-bit."""
    if isinstance(key, str):
        key = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
        seed = mix(seed + 1)  # a row named "0" is not row 0
    return mix(mix(seed + _GAMMA) + (key + 1) * _GAMMA)


def stream_key(name: str) -> int:
    """The stream of a plug-in, by name; far from the built-in streams."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") | 1 << 63


def row_keys(seeds: Tensor, positions: Tensor, stream: int) -> Tensor:
    """One key a row [R] int64, from the request's seed [R], the position [R] and the stream."""
    return mix(mix(seeds + positions * signed(_GAMMA)) + signed(stream * _GAMMA))


def token_hash(keys: Tensor, ids: Tensor) -> Tensor:
    """64 random bits for each (row key, id), broadcast."""
    return mix(keys + ids * signed(_GAMMA))


def uniform(keys: Tensor, ids: Tensor) -> Tensor:
    """Numbers strictly inside (0, 1), float64, broadcast over (row key, id)."""
    mantissa = _shifted(token_hash(keys, ids), 64 - _BITS)
    return (mantissa.to(torch.float64) + 0.5) * 2.0**-_BITS


def gumbel(keys: Tensor, ids: Tensor) -> Tensor:
    """Standard Gumbel noise, float64, broadcast over (row key, id)."""
    return -torch.log(-torch.log(uniform(keys, ids)))


def few_gumbel(seed: int, stream: int, position: int, ids: Iterable[int]) -> list[float]:
    """The same for a few ids at one position, made on the host: tensors of a few numbers take longer."""
    key = mix(mix(seed + position * _GAMMA) + stream * _GAMMA)
    mantissas = (mix(key + token * _GAMMA) >> (64 - _BITS) for token in ids)
    return [-log(-log((mantissa + 0.5) * 2.0**-_BITS)) for mantissa in mantissas]


def signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _shifted(value: Tensor, bits: int) -> Tensor:
    # int64 >> keeps the sign; the mask makes it a shift of plain bits.
    return (value >> bits) & ((1 << (64 - bits)) - 1)
