"""Products of a mixture of experts on CUDA: which expert multiplies a row is looked up by the device."""

from __future__ import annotations

import torch
from torch import Tensor

from gencli.models.decoder.products.fixed import (
    ROWS,
    TILES,
    bits_of_weights,
    num_parts,
    summed_in_parts,
)
from processors.kernels.operation import operation

__all__ = [
    "SPLIT_PROGRAMS",
    "GroupedProduct",
    "grouped_product",
    "grouped_product_torch",
    "num_parts_grouped",
]

SPLIT_PROGRAMS = 1024  # up to so many programs each part of a sum is computed by one of its own


class GroupedProduct:
    """The products of E experts, x @ weight[e].T, with FixedProduct's order of sums.

    `weight` is [E, out, in], or codes with scales, and zeros in groups of inputs, as fixed_product takes them
    for one expert. `bias` is [E, out]. The weights of an expert without rows are not read. One launch, of a
    size that depends on shapes alone.
    """

    kernel = "grouped"

    def __init__(
        self,
        weight: Tensor,
        scales: Tensor | None = None,
        zeros: Tensor | None = None,
        *,
        bias: Tensor | None = None,
    ) -> None:
        self._weight, self._scales, self._zeros, self._bias = weight, scales, zeros, bias
        self.nbytes = sum(part.nbytes for part in (weight, scales, zeros) if part is not None)
        self._arrived = weight.new_zeros(SPLIT_PROGRAMS, dtype=torch.int32)

    def rows_of_tile(self, pairs: int) -> int:
        """Return how many pairs of one expert a program multiplies: one tile of rows, or several.

        `pairs` counts those of all experts. A program takes several tiles if they would be at least half full
        with the average expert's pairs. Each tile is computed as if it were alone.
        """
        several = ROWS * TILES[bits_of_weights(self._weight)]
        return several if 2 * pairs >= several * len(self._weight) else ROWS

    def __call__(self, given: Tensor, lists: Tensor, tiles: Tensor, block: int, fan: int) -> Tensor:
        """Return the products [N * fan, out] of `given` [N, in].

        Pair p is row p // fan of `given`. Which expert multiplies it is told by `lists` and `tiles`, which
        have `block` pairs at most: what `routed` returns.
        """
        return grouped_product(
            given,
            (self._weight, self._scales, self._zeros, self._bias),
            lists,
            tiles,
            block,
            fan,
            self._arrived,
        )


def grouped_product(
    given: Tensor,
    weights: tuple[Tensor, Tensor | None, Tensor | None, Tensor | None],
    lists: Tensor,
    tiles: Tensor,
    block: int,
    fan: int,
    arrived: Tensor,
) -> Tensor:
    """Return the products of GroupedProduct; `arrived` are its counters, SPLIT_PROGRAMS zeros."""
    made: Tensor = _product(given.contiguous(), *weights, lists, tiles, block, fan, arrived)
    return made


def num_parts_grouped(pairs: int, lists: Tensor, weight: Tensor) -> int:
    """Return the number of parts of a sum. It depends on the weight's shape and the experts of a row alone.

    A row alone has as many programs as it has experts, times the tiles of their outputs.
    """
    _, outputs, inputs = weight.shape
    used = max(1, pairs // max(1, lists.shape[1]))
    inputs *= 2 if weight.dtype == torch.uint8 else 1
    return num_parts(outputs * used, inputs, bits_of_weights(weight))


def grouped_product_torch(
    given: Tensor,
    weight: Tensor,
    scales: Tensor | None,
    zeros: Tensor | None,
    bias: Tensor | None,
    lists: Tensor,
    tiles: Tensor,
    block: int,
    fan: int,
    arrived: Tensor,
) -> Tensor:
    """As grouped_product, in PyTorch: tile by tile; `arrived` is unused."""
    made = given.new_empty(len(given) * fan, weight.shape[1])
    parts = num_parts_grouped(len(made), lists, weight)
    for expert, first, count in tiles.tolist():
        pairs = lists[expert, first : first + count].long()
        scale, zero, own = (None if part is None else part[expert] for part in (scales, zeros, bias))
        sums = summed_in_parts(given[pairs // fan], weight[expert], scale, zero, own, parts)
        made[pairs] = sums.to(made.dtype)
    return made


_product = operation(
    "grouped_product(Tensor given, Tensor weight, Tensor? scales, Tensor? zeros, Tensor? bias, Tensor lists, "
    "Tensor tiles, int block, int fan, Tensor(a!) arrived) -> Tensor",
    grouped_product_torch,
    "gencli.models.decoder.products.grouped_triton:grouped_product_triton",
)
