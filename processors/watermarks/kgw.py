"""Green tokens as transformers chooses them on a CPU: a permutation of the vocabulary seeded by the context.

The permutation is torch.randperm with a generator on the CPU, whatever device the logits are on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from processors.catalog.watermark import KgwParams
from processors.rng import signed

__all__ = ["NUM_CANDIDATES", "Green"]

NUM_CANDIDATES = 40  # most likely tokens that selfhash tests
_TABLE = 1_000_003  # entries of the table of selfhash
_KEPT = 256  # permutations whose green ids are cached


class Green:
    """The green tokens of one key for a vocabulary of `vocab` ids. `size` of them are green."""

    def __init__(self, params: KgwParams, vocab: int) -> None:
        assert params.key is not None
        self.params, self.vocab = params, vocab
        self.size = int(vocab * params.ratio)
        (self._key,) = params.key.numbers
        self._generator = torch.Generator()
        self._kept: dict[int, Tensor] = {}

    @property
    def is_self(self) -> bool:
        """Whether the token itself is part of its context."""
        return self.params.scheme == "selfhash"

    def after(self, last: int) -> Tensor:
        """Return which ids are green after this token [V] bool, with lefthash."""
        return self._green(self._key * last)

    def among(self, context: Sequence[int], candidates: Sequence[int]) -> list[bool]:
        """Return which candidates are green after a context of width - 1 ids, with selfhash."""
        if not candidates:
            return []
        table = self._table
        own = table[torch.tensor(candidates) % _TABLE] + 1
        seeds = own * own * signed(self._key)
        if context:
            left = table[torch.tensor(context) % _TABLE] + 1
            seeds = torch.minimum(seeds, (left[:, None] * signed(self._key) * own).amin(0))
        greens = map(self._green, seeds.tolist())
        return [bool(green[token]) for green, token in zip(greens, candidates, strict=True)]

    def is_green(self, ngram: Sequence[int]) -> bool:
        """Return whether the last id of an n-gram is green after the other ids."""
        *context, token = ngram
        if token >= self.vocab:
            return False
        if self.is_self:
            return self.among(context, [token])[0]
        return bool(self.after(context[-1])[token])

    @cached_property
    def _table(self) -> Tensor:
        return torch.randperm(_TABLE, generator=self._generator.manual_seed(self._key))

    def _green(self, seed: int) -> Tensor:
        """Return the green ids of a seed [V] bool."""
        seed %= 2**64 - 1
        found = self._kept.pop(seed, None)
        if found is None:
            if len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            order = torch.randperm(self.vocab, generator=self._generator.manual_seed(seed))
            found = torch.zeros(self.vocab, dtype=torch.bool)
            found[order[: self.size]] = True
        self._kept[seed] = found  # the most recently used seed comes last
        return found
