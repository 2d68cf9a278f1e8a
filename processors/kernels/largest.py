"""The largest logits of each row with their ids, and the mass of each block of ids, on a CPU."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from processors.kernels.blocks import row_parts

__all__ = ["MASS_BLOCK", "block_masses", "largest"]

MASS_BLOCK = 512  # ids per block of `block_masses`
_BLOCK = 64  # ids per block whose maximum is taken
_NARROW = 4  # up to this many times the ids that blocks would give, the whole row is looked at

def largest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row of logits [R, V], descending, and their ids, both [R, count].

    Which of equal values are returned, and their order, is not determined. NaN is the largest. The values are
    those of the `count` blocks with the largest maxima, as each of these has a value at least as large as any
    in the other blocks. Requires contiguous rows and count <= V.
    """
    rows, width = logits.shape
    if count * _BLOCK * _NARROW > width:
        values, ids = logits.topk(count, dim=1)
        return values, ids
    whole = width // _BLOCK
    maxima = logits[:, : whole * _BLOCK].view(rows, whole, _BLOCK).amax(-1)
    rest = width - whole * _BLOCK
    if rest:
        maxima = torch.cat([maxima, logits[:, -rest:].amax(1, keepdim=True)], dim=1)
    blocks = maxima.topk(count, dim=1, sorted=False).indices
    starts = blocks * _BLOCK
    if rest:  # the last block ends at the end of the row, and begins inside the block before
        starts.clamp_(max=width - _BLOCK)
    first = torch.arange(0, rows * width, width)[:, None]
    windows = logits.view(-1).unfold(0, _BLOCK, 1)  # [R * V - 63, 64], a view
    found = windows.index_select(0, (starts + first).view(-1)).view(rows, count, _BLOCK)
    if rest:
        is_twice = (blocks == whole)[:, :, None] & (torch.arange(_BLOCK) < _BLOCK - rest)
        found.masked_fill_(is_twice, -math.inf)
    values, at = found.view(rows, -1).topk(count, dim=1)
    return values, starts.gather(1, at // _BLOCK).add_(at % _BLOCK)


def block_masses(logits: Tensor, peak: Tensor, scale: float | Tensor) -> Tensor:
    """Return the sums of 2 ** ((logits - peak) * scale) over blocks of ids, [R, ceil(V / MASS_BLOCK)] float32.

    logits [R, V], peak and scale [R, 1]. The relative error of a block with a mass above 2 ** -60 is at most
    1e-5.
    """
    rows, width = logits.shape
    whole = width // MASS_BLOCK * MASS_BLOCK
    sums = logits.new_empty(rows, -(-width // MASS_BLOCK))
    parts = row_parts(logits)
    buffer = logits.new_empty(parts[0].stop, width)
    for part in parts:
        some = torch.sub(logits[part], peak[part], out=buffer[: part.stop - part.start])
        some.mul_(scale[part] if isinstance(scale, Tensor) else scale).exp2_()
        torch.sum(some[:, :whole].view(len(some), -1, MASS_BLOCK), dim=-1, out=sums[part, : whole // MASS_BLOCK])
        if whole < width:
            torch.sum(some[:, whole:], dim=-1, out=sums[part, -1])
    return sums
