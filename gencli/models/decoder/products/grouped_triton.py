"""The product of a mixture of experts with Triton: the kernels of fixed_triton, with a table of tiles."""

from __future__ import annotations

from torch import Tensor

from gencli.models.decoder.products.dense_products import ROWS, SPLIT_PROGRAMS, num_parts_grouped, num_tiles
from gencli.models.decoder.products.fixed_launch import launch_few, launch_many

__all__ = ["grouped_product_triton"]


def grouped_product_triton(
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
    """As grouped_product_torch. All inputs are contiguous; `arrived` has SPLIT_PROGRAMS zeros."""
    count, outputs = len(given), weight.shape[1]
    out = given.new_empty(count * fan, outputs)
    if not count:
        return out
    operands = (given, weight, scales, zeros, bias, out)
    parts = num_parts_grouped(count * fan, lists, weight)
    if block == ROWS and len(tiles) * num_tiles(outputs) * parts <= SPLIT_PROGRAMS:
        launch_few(len(tiles), operands, arrived, parts, fan, lists, tiles)
    else:
        launch_many(len(tiles), operands, parts, block // ROWS, fan, lists, tiles)
    return out
