"""Launch the kernels of fixed_triton, with the sizes and options of a product."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor

from gencli.models.decoder.products.dense_products import (
    GROUP,
    MAX_SPLIT_ROWS,
    MIDDLE,
    NARROW_INPUTS,
    OUTPUTS,
    ROWS,
    TILES,
    bits_of_weights,
    has_whole_tiles,
    num_parts,
    num_tiles,
)
from gencli.models.decoder.products.fixed_triton import OPTIONS, _few, _many

__all__ = ["fixed_product_triton", "launch_few", "launch_many"]

_MANY = {"num_warps": 8, "num_stages": 3}
_INPUTS = {4: 64, 8: 64, 16: 64, 32: 16}  # inputs of a tile, by the bits of a weight: what registers hold
_WIDE = 128  # rows of one tile instead of several, where the instruction does not grow with it
# Of few rows: as many bytes of narrow weights on their way. With a limit RTX 50 spills no register.
_FEW = {4: {"num_stages": 7}, 8: {"num_stages": 5, "maxnreg": 128}}
# Tiles of twice as many narrow weights, which eight warps widen: 20 to 45 % less time on an H200.
_FEW_NARROW = {"num_warps": 8, "num_stages": 3}


def fixed_product_triton(
    given: Tensor,
    weight: Tensor,
    scales: Tensor | None,
    zeros: Tensor | None,
    bias: Tensor | None,
    arrived: Tensor,
    is_wide: bool = False,
) -> Tensor:
    """As fixed_product_torch. All inputs are contiguous; `arrived` has a zero for each tile of few rows."""
    count, outputs = len(given), len(weight)
    out = given.new_empty(count, outputs, dtype=torch.float32 if is_wide else given.dtype)
    if not count:
        return out
    operands = (given, weight, scales, zeros, bias, out)
    parts = num_parts(outputs, given.shape[1], bits_of_weights(weight))
    if count <= MAX_SPLIT_ROWS:
        launch_few(triton.cdiv(count, ROWS), operands, arrived, parts)
    else:
        bits = bits_of_weights(weight)
        rows, several = (_WIDE, 1) if bits == 16 and _is_by_warp(given.device) else (ROWS, TILES[bits])
        launch_many(triton.cdiv(count, several * rows), operands, parts, several, rows=rows)
    return out


@cache
def _is_by_warp(device: torch.device) -> bool:
    """Return whether 16-bit products are the instructions of one warp there, m16n8k16 for tiles of any size.

    Those of Hopper (9.0) and of Blackwell for data centers (10.x) have the rows of the tile.
    """
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] not in (9, 10, 11)


_Operands = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor]


def launch_few(
    across: int,
    operands: _Operands,
    arrived: Tensor,
    parts: int,
    fan: int = 1,
    lists: Tensor | None = None,
    tiles: Tensor | None = None,
) -> None:
    """Launch a program for each part of the sums of a tile, for `across` tiles of rows."""
    given, weight, *_, out = operands
    tiles_across, bits = num_tiles(out.shape[1]), bits_of_weights(weight)
    cells = across * tiles_across * parts * ROWS * OUTPUTS if parts > 1 else 1
    stored = torch.empty(cells, dtype=torch.float32, device=given.device)
    sizes = _sizes(operands, lists)
    constants, options = _constants(operands, parts, fan), OPTIONS | _FEW.get(bits, {})
    if bits <= 8 and has_whole_tiles(given.shape[1], parts):
        constants, options = constants | {"INPUTS": NARROW_INPUTS}, OPTIONS | _FEW_NARROW
    _few[across, tiles_across, parts](
        *operands, stored, arrived, lists, tiles, *sizes, **constants, **options
    )


def launch_many(
    across: int,
    operands: _Operands,
    parts: int,
    several: int,
    fan: int = 1,
    lists: Tensor | None = None,
    tiles: Tensor | None = None,
    *,
    rows: int = ROWS,
) -> None:
    """Launch a program for `several` tiles of `rows` rows, `across` times."""
    sizes, constants = _sizes(operands, lists), _constants(operands, parts, fan) | {"ROWS": rows}
    grid = (across, num_tiles(operands[-1].shape[1]))
    _many[grid](*operands, lists, tiles, *sizes, TILES=several, **constants, **OPTIONS | _MANY)


def _sizes(operands: _Operands, lists: Tensor | None) -> tuple[int, ...]:
    given, weight, *_, out = operands
    list_size = 0 if lists is None else lists.shape[1]
    return len(given), list_size, out.shape[1], given.shape[1], given.stride(0), weight.stride(-2)


def _constants(operands: _Operands, parts: int, fan: int) -> dict[str, Any]:
    bits = bits_of_weights(operands[1])
    own = {"BITS": bits, "PARTS": parts, "HAS_BIAS": operands[4] is not None, "FAN": fan}
    return own | {"ROWS": ROWS, "OUTPUTS": OUTPUTS, "INPUTS": _INPUTS[bits], "GROUP": GROUP, "MIDDLE": MIDDLE}
