"""Which combinations of values the models never see in training."""

import zlib
from collections.abc import Callable, Hashable
from random import Random
from typing import Literal, TypeVar

Split = Literal["train", "held-out"]
T = TypeVar("T")

HELD_OUT_ONE_IN = 8


def is_held_out(*key: Hashable) -> bool:
    """Decide by a checksum of the key, so that every program agrees without a list on disk."""
    return zlib.crc32("|".join(map(str, key)).encode()) % HELD_OUT_ONE_IN == 0


def draw(
    rng: Random, split: Split, make: Callable[[Random], T], key: Callable[[T], tuple[Hashable, ...]]
) -> T:
    """Make values until one's key lies in the split."""
    while True:
        value = make(rng)
        if is_held_out(*key(value)) == (split == "held-out"):
            return value
