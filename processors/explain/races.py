"""Repeats the draw of a row, to find the runner-up and its distance from the drawn token."""

from __future__ import annotations

import torch
from torch import Tensor

from processors.catalog import Draw
from processors.explain.measures import Snapshot, best
from processors.explain.view import Race
from processors.rng import Stream, gumbel, row_keys
from processors.sampler import BLOCK, PLAIN_LIMIT, block_sums, find_block, invert

__all__ = ["race"]


def race(kind: Draw, row: Snapshot, token: int, seed: Tensor, position: Tensor) -> Race:
    """Return the race of one row of processed logits; seed and position are [1].

    The margin is negative if the draw gives another id than `token`, and None for a masked token.
    """
    if row.alive < 2 or row.logits[token] == -torch.inf:
        return Race(kind, None, None)
    if kind == "greedy":
        return _of_logits(row, token)
    if kind == "multinomial":
        return _of_interval(row.logits, token, seed, position)
    if row.alive <= PLAIN_LIMIT or len(row.logits) <= PLAIN_LIMIT:
        return _beaten(_noisy(row.logits[row.left], row.left, seed, position, Stream.TOKEN), row.left, token)
    return _of_blocks(row.logits, token, seed, position)


def _of_logits(row: Snapshot, token: int) -> Race:
    at, values = best(row.values, 2)
    ids = (at if row.ids is None else row.ids[at]).tolist()
    place = 1 if ids[0] == token else 0
    return Race("greedy", float(row.logits[token] - values[place]), ids[place])


def _noisy(values: Tensor, ids: Tensor, seed: Tensor, position: Tensor, stream: Stream) -> Tensor:
    return values + gumbel(row_keys(seed, position, stream), ids)


def _beaten(scores: Tensor, ids: Tensor, token: int) -> Race:
    """Return the race by scores [N] of ids [N]; the margin is None if no other id has a score."""
    own = scores[ids == token]
    others = torch.where(ids == token, -torch.inf, scores)
    place = int(others.argmax())
    if others[place] == -torch.inf:
        return Race("gumbel", None, None)
    return Race("gumbel", float(own - others[place]), int(ids[place]))


def _of_blocks(logits: Tensor, token: int, seed: Tensor, position: Tensor) -> Race:
    """Return the race of the two-level draw: the closer one of the race of blocks and the race in the block.

    The runner-up is the best id of the second block, or the second id of the drawn block.
    """
    sums = block_sums(logits[None])[0]
    numbers = torch.arange(len(sums), device=logits.device)
    blocks = _beaten(_noisy(sums, numbers, seed, position, Stream.BLOCK), numbers, token // BLOCK)
    inside = _beaten(*_scores(logits, token // BLOCK, seed, position), token)
    if blocks.margin is None or (inside.margin is not None and inside.margin <= blocks.margin):
        return inside
    assert blocks.runner_up is not None
    scores, ids = _scores(logits, blocks.runner_up, seed, position)
    return Race("gumbel", blocks.margin, int(ids[scores.argmax()]))


def _scores(logits: Tensor, block: int, seed: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
    """Return the noisy logits of a block, and its ids."""
    ids = torch.arange(block * BLOCK, min(block * BLOCK + BLOCK, len(logits)), device=logits.device)
    return _noisy(logits[ids].double(), ids, seed, position, Stream.TOKEN), ids


def _of_interval(logits: Tensor, token: int, seed: Tensor, position: Tensor) -> Race:
    """Return the race of the draw by inverse CDF: distance of the uniform number from its interval's ends.

    The runner-up is the id beyond the nearer end of the token's interval. The ends 0 and 1 of the whole row
    are not considered.
    """
    found = find_block(logits[None], seed, position)
    choice = int(invert(found.inside, found.rest)[0])
    if (drawn := int(found.ids[0, choice])) != token:
        return Race("multinomial", -1.0, drawn)
    sums, rest = found.inside[0].cumsum(0), float(found.rest)
    sums = torch.nn.functional.pad(sums / sums[-1], (1, 0))
    share = float(found.blocks[0, token // BLOCK] / found.blocks.sum())
    ends = [
        (rest - float(sums[choice]), _below(logits, found.blocks[0], token)),
        (float(sums[choice + 1]) - rest, _above(logits, found.blocks[0], token)),
    ]
    known = [(max(0.0, distance * share), other) for distance, other in ends if other is not None]
    return Race("multinomial", *min(known, default=(None, None)))


def _below(logits: Tensor, blocks: Tensor, token: int) -> int | None:
    """Return the nearest lower id with a positive weight; None if there is none."""
    block = token // BLOCK
    if len(ids := _drawable(logits, block)) and ids[0] < token:
        return int(ids[ids < token][-1])
    others = blocks[:block].nonzero()
    return int(_drawable(logits, int(others[-1]))[-1]) if len(others) else None


def _above(logits: Tensor, blocks: Tensor, token: int) -> int | None:
    """Return the nearest higher id with a positive weight; None if there is none."""
    block = token // BLOCK
    if len(ids := _drawable(logits, block)) and ids[-1] > token:
        return int(ids[ids > token][0])
    others = blocks[block + 1 :].nonzero()
    return int(_drawable(logits, block + 1 + int(others[0]))[0]) if len(others) else None


def _drawable(logits: Tensor, block: int) -> Tensor:
    """Return the ids of a block with a positive weight relative to the block's largest."""
    part = logits[block * BLOCK : block * BLOCK + BLOCK].double()
    return block * BLOCK + (part - part.amax()).exp().nonzero().squeeze(1)
