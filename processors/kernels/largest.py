"""Top-k by block maxima and sums of exp over rows and blocks of ids, on a CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from processors.kernels.blocks import row_parts

__all__ = ["block_masses", "largest", "total_mass"]

_BLOCK = 64  # ids per block whose maximum is taken
_NARROW = 4  # rows up to this many times the ids in the chosen blocks use topk over all ids


def largest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest logits [R, V] of each row, descending, and their ids, [R, count] each.

    Which of equal values are returned, and their order, is not determined. NaN is the largest. Only the
    `count` blocks with the largest maxima are searched: they contain the `count` largest values. Requires
    contiguous rows and count <= V.
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
    if rest:  # the partial last block is read from V - BLOCK on, so it overlaps the block before
        starts.clamp_(max=width - _BLOCK)
    first = torch.arange(0, rows * width, width)[:, None]
    windows = logits.view(-1).unfold(0, _BLOCK, 1)  # [R * V - 63, 64], a view
    found = windows.index_select(0, (starts + first).view(-1)).view(rows, count, _BLOCK)
    if rest:
        is_twice = (blocks == whole)[:, :, None] & (torch.arange(_BLOCK) < _BLOCK - rest)
        found.masked_fill_(is_twice, -math.inf)
    values, at = found.view(rows, -1).topk(count, dim=1)
    return values, starts.gather(1, at // _BLOCK).add_(at % _BLOCK)


def total_mass(logits: Tensor, peak: Tensor, scale: Tensor) -> Tensor:
    """Return the sum of 2 ** ((logits - peak) * scale) over each row [R, 1] float32.

    logits [R, V], peak and scale [R, 1], all float32. The relative error is at most 1e-5.
    """
    return torch.cat([some.sum(1, keepdim=True) for _, some in _masses(logits, peak, scale)])


def block_masses(logits: Tensor, peak: Tensor, scale: Tensor, size: int) -> Tensor:
    """As `total_mass` over each block of `size` ids, [R, ceil(V / size)]; accurate for sums >= 2 ** -60."""
    width = logits.shape[1]
    whole = width // size * size
    sums = logits.new_empty(len(logits), -(-width // size))
    for part, some in _masses(logits, peak, scale):
        torch.sum(some[:, :whole].view(len(some), -1, size), dim=-1, out=sums[part, : whole // size])
        if whole < width:
            torch.sum(some[:, whole:], dim=-1, out=sums[part, -1])
    return sums


def _masses(logits: Tensor, peak: Tensor, scale: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield (slice of rows, 2 ** ((logits - peak) * scale)); each part overwrites the one before."""
    parts = row_parts(logits)
    if len(parts) == 1:
        yield parts[0], (logits - peak).mul_(scale).exp2_()
        return
    buffer = logits.new_empty(parts[0].stop, logits.shape[1])
    for part in parts:
        some = torch.sub(logits[part], peak[part], out=buffer[: part.stop - part.start])
        yield part, some.mul_(scale[part]).exp2_()
