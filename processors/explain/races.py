"""The draw of a row again: which id came next, and by how much it was behind."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.catalog import Draw
from processors.explain.view import Race
from processors.rng import Stream, gumbel, row_keys
from processors.sampler import BLOCK, PLAIN_LIMIT

__all__ = ["race"]


def race(kind: Draw, logits: Tensor, token: int, seed: Tensor, position: Tensor) -> Race:
    """Return the race of one row of processed logits [V]; seed and position are [1].

    A masked token, and one that is left alone, has none.
    """
    ids = torch.nonzero(logits > -torch.inf).flatten()
    if len(ids) < 2 or logits[token] == -torch.inf:
        return Race(kind, None, None)
    if kind == "greedy":
        return _beaten(kind, logits[ids], ids, token)
    if kind == "gumbel":
        if len(ids) <= PLAIN_LIMIT or logits.shape[0] <= PLAIN_LIMIT:
            return _beaten(kind, _noisy(logits[ids], ids, seed, position, Stream.TOKEN), ids, token)
        return _of_blocks(logits, token, seed, position)
    return Race(kind, None, None)


def _noisy(values: Tensor, ids: Tensor, seed: Tensor, position: Tensor, stream: Stream) -> Tensor:
    return values + gumbel(row_keys(seed, position, stream), ids)


def _beaten(kind: Draw, scores: Tensor, ids: Tensor, token: int) -> Race:
    """Return the race by scores [N] of ids [N]."""
    own = scores[ids == token]
    others = torch.where(ids == token, -torch.inf, scores)
    best = int(others.argmax())
    return Race(kind, float(own - others[best]), int(ids[best]))


def _of_blocks(logits: Tensor, token: int, seed: Tensor, position: Tensor) -> Race:
    """Return the race of the two-level draw: the closer one of the race of blocks and that inside the block.

    The runner-up is the best of the other block, or of the same one.
    """
    parts = torch.split(logits.double(), BLOCK)
    sums = torch.stack([part.logsumexp(0) for part in parts])
    numbers = torch.arange(len(parts), device=logits.device)
    blocks = _beaten("gumbel", _noisy(sums, numbers, seed, position, Stream.BLOCK), numbers, token // BLOCK)
    inside = _inside(parts, token // BLOCK, token, seed, position)
    if inside.margin is not None and (blocks.margin is None or inside.margin <= blocks.margin):
        return inside
    assert blocks.runner_up is not None
    return Race("gumbel", blocks.margin, _winner(parts, blocks.runner_up, seed, position))


def _inside(parts: tuple[Tensor, ...], block: int, token: int, seed: Tensor, position: Tensor) -> Race:
    ids = block * BLOCK + torch.arange(len(parts[block]), device=parts[block].device)
    alive = parts[block] > -torch.inf
    if int(alive.sum()) < 2:
        return Race("gumbel", None, None)
    scores = _noisy(parts[block][alive], ids[alive], seed, position, Stream.TOKEN)
    return _beaten("gumbel", scores, ids[alive], token)


def _winner(parts: tuple[Tensor, ...], block: int, seed: Tensor, position: Tensor) -> int:
    ids = block * BLOCK + torch.arange(len(parts[block]), device=parts[block].device)
    return int(ids[_noisy(parts[block], ids, seed, position, Stream.TOKEN).argmax()])
