"""The bits of SynthID as transformers computes them: a linear congruential hash, and a table of random bits.

The table has a power of 2 entries, so an entry depends on the low bits of the hash only. Therefore the bits
of all depths are a function of that many low bits of the hash of an n-gram, and one look-up gives them all.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from processors.catalog.watermark import SynthIdParams

__all__ = ["BLOCK_DEPTHS", "Tournament", "accumulated"]

BLOCK_DEPTHS = 10  # depths computed at once, for 2 ** 10 classes of tokens
_MULTIPLIER = 6364136223846793005  # multiplier of the generator in newlib and musl


def accumulated(state: Tensor, ids: Tensor) -> Tensor:
    """Return the hash [..., N] of ids [..., N] appended to a state, in wrapping int64; it begins with 1."""
    return (state + ids) * _MULTIPLIER + 1


class Tournament:
    """The pseudorandom bits g that the keys give to tokens after contexts."""

    def __init__(self, params: SynthIdParams, device: torch.device) -> None:
        assert params.key is not None
        self.params, self.depth = params, len(params.key.numbers)
        self._keys, self._device = params.key.numbers, device

    def hashed(self, context: Tensor) -> Tensor:
        """Return the hash [R] of contexts [R, ngram - 1]."""
        state = torch.ones_like(context[:, 0])
        for column in context.unbind(1):
            state = accumulated(state, column)
        return state

    def bits(self, context: Tensor, ids: Tensor) -> Tensor:
        """Return for each id the bits of all depths in one int64, depth 0 lowest.

        `context` holds hashes; it is broadcast with `ids`.
        """
        return self._packed.take(accumulated(context, ids) & (self.params.table_size - 1))

    @cached_property
    def table(self) -> Tensor:
        """The table of bits [table_size] int64."""
        generator = torch.Generator().manual_seed(self.params.table_seed)
        return torch.randint(0, 2, (self.params.table_size,), generator=generator).to(
            self._device, non_blocking=True
        )

    @cached_property
    def _packed(self) -> Tensor:
        low = torch.arange(self.params.table_size, device=self._device)
        packed = torch.zeros_like(low)
        for depth, key in enumerate(self._keys):
            packed |= self.table[accumulated(low, torch.tensor(key)) & (self.params.table_size - 1)] << depth
        return packed
