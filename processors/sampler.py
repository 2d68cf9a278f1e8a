"""From processed logits to one token a row: argmax, argmax of logits + noise, or inverse CDF.

Noise is keyed by token id, so it does not matter which other ids survive, nor which rows are
neighbours. Where at most `PLAIN_LIMIT` ids are finite each of them gets its own Gumbel noise. Where more
are, the draw has two levels: the maximum of Gumbel-perturbed logits of a block is itself Gumbel around
the block's log-sum-exp and independent of which id attains it, so one noise a block picks the block and
one an id picks the id inside (Maddison, Tarlow, Minka 2014). The row's finite logits alone decide.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from processors.base import Noise
from processors.catalog import Draw
from processors.kernels.blocks import few_finite
from processors.kernels.softmax import softmax_parts
from processors.rng import Stream, few_gumbel, gumbel, row_keys, uniform
from processors.rows import Rows
from processors.upload import upload

__all__ = [
    "BLOCK",
    "EMPTY",
    "NON_FINITE",
    "PLAIN_LIMIT",
    "Sampler",
    "draw_by_weight",
    "greedy",
    "gumbel_max",
    "inverse_cdf",
]

PLAIN_LIMIT = 4096  # up to this many finite logits, every id draws its own noise
BLOCK = 512  # ids that share the first level of the two-level draw

EMPTY = -1  # in place of a token: nothing to choose from
NON_FINITE = -2  # in place of a token: NaN or +inf among the logits


class Sampler:
    """Chooses a token for each row with the method of the row's request."""

    def __init__(self) -> None:
        self._draws: dict[int, Draw] = {}

    def admit(self, slot: int, draw: Draw) -> None:
        """Set the method of a slot."""
        self._draws[slot] = draw

    def fork(self, source: int, target: int) -> None:
        """The target slot draws as the source does."""
        self._draws[target] = self._draws[source]

    def noise(self, slot: int, seed: int) -> Noise | None:
        """What the slot's draw adds to the logits of a few ids, where it adds something to each."""
        return partial(few_gumbel, seed, Stream.TOKEN) if self._draws[slot] == "gumbel" else None

    def __call__(self, logits: Tensor, rows: Rows) -> Tensor:
        """Tokens [R] int64 for logits [R, V] float32; EMPTY or NON_FINITE where no choice can be made."""
        draws = [self._draws[slot] for slot in rows.host_slots]
        kinds = sorted(set(draws))
        if len(kinds) == 1:
            tokens = _choose(kinds[0], logits, rows)
        else:
            tokens = torch.empty_like(rows.slots)
            for kind in kinds:
                place = [i for i, draw in enumerate(draws) if draw == kind]
                at = upload(place, logits.device)
                tokens[at] = _choose(kind, logits[at], rows.select(place))
        return _checked(tokens, logits.amax(dim=-1))


def _choose(draw: Draw, logits: Tensor, rows: Rows) -> Tensor:
    if draw == "greedy":
        return greedy(logits)
    method = gumbel_max if draw == "gumbel" else inverse_cdf
    return method(logits, rows.seeds, rows.positions)


def _checked(tokens: Tensor, top: Tensor) -> Tensor:
    # amax hands NaN on, so one number a row tells an empty row and a broken one from a good one.
    tokens = torch.where(top == -torch.inf, EMPTY, tokens)
    return torch.where(top < torch.inf, tokens, NON_FINITE)


def greedy(logits: Tensor) -> Tensor:
    """The most likely token of each row [R]; the lowest id wins a tie."""
    return logits.argmax(dim=-1)


def gumbel_max(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """A draw from softmax(logits) for each row [R]: argmax(logits + Gumbel noise)."""
    if logits.shape[1] <= PLAIN_LIMIT:
        return _plain(logits, seeds, positions)
    if logits.is_cuda:  # hashing every id is cheap there, and finding the survivors would wait for the device
        few = (logits > -torch.inf).sum(dim=-1) <= PLAIN_LIMIT
        both = (_plain(logits, seeds, positions), _two_level(logits, seeds, positions))
        return torch.where(few, *both)
    few, row, ids = few_finite(logits, PLAIN_LIMIT)
    if (count := int(few.sum())) == 0:
        return _two_level(logits, seeds, positions)
    tokens = _plain_sparse(logits, row, ids, seeds, positions)
    if count < len(logits):
        many = (~few).nonzero().squeeze(1)
        tokens[many] = _two_level(logits[many], seeds[many], positions[many])
    return tokens


def _plain(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    keys = row_keys(seeds, positions, Stream.TOKEN)[:, None]
    ids = torch.arange(logits.shape[1], device=logits.device)
    return (logits + gumbel(keys, ids)).argmax(dim=-1)


def _plain_sparse(logits: Tensor, row: Tensor, ids: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """As `_plain`, among the ids [N] of their rows [N] alone; 0 for a row without any."""
    keys = row_keys(seeds, positions, Stream.TOKEN)
    scores = logits[row, ids] + gumbel(keys[row], ids)
    best = scores.new_full((len(logits),), -torch.inf).scatter_reduce(0, row, scores, "amax")
    beyond = logits.shape[1]
    winners = torch.where(scores == best[row], ids, beyond)
    lowest = torch.full_like(seeds, beyond).scatter_reduce(0, row, winners, "amin")
    return torch.where(lowest < beyond, lowest, 0)


def _two_level(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    block = _noisy_best(_block_sums(logits), seeds, positions)
    return _inside(*_of_block(logits, block, -torch.inf), seeds, positions)


def draw_by_weight(weights: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """A draw by weights [R, V] >= 0, of which each row has one above 0: two levels, whatever their number."""
    block = _noisy_best(_sums_of_blocks(weights).log_(), seeds, positions)
    ids, inside = _of_block(weights, block, 0)
    return _inside(ids, inside.log_(), seeds, positions)


def _noisy_best(sums: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """The block [R, 1] whose log-sum-exp [R, B] is the largest with noise."""
    keys = row_keys(seeds, positions, Stream.BLOCK)[:, None]
    blocks = torch.arange(sums.shape[1], device=sums.device)
    return (sums + gumbel(keys, blocks)).argmax(dim=-1, keepdim=True)


def _inside(ids: Tensor, logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """The id [R] of a block whose logit [R, BLOCK] is the largest with noise."""
    keys = row_keys(seeds, positions, Stream.TOKEN)[:, None]
    choice = (logits + gumbel(keys, ids)).argmax(dim=-1, keepdim=True)
    return ids.gather(1, choice).squeeze(1)


def inverse_cdf(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """A draw from softmax(logits) for each row [R]: one uniform number, ids in order, float64 sums."""
    keys = row_keys(seeds, positions, Stream.TOKEN)[:, None]
    sums = _block_sums(logits)
    block, rest = _invert((sums - sums.amax(-1, keepdim=True)).exp(), uniform(keys, torch.zeros_like(keys)))
    ids, inside = _of_block(logits, block, -torch.inf)
    inside = inside.to(torch.float64)
    choice, _ = _invert((inside - inside.amax(-1, keepdim=True)).exp(), rest)
    return ids.gather(1, choice).squeeze(1)


def _invert(weights: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Place [R, 1] at which the cumulated weights [R, N] pass u of their sum, and what u is inside it.

    A place without weight is never taken, whatever the rounding.
    """
    sums = weights.cumsum(dim=-1)
    target = u * sums[:, -1:]
    place = torch.arange(weights.shape[1], device=weights.device)
    last = torch.where(weights > 0, place, 0).amax(dim=-1, keepdim=True)
    first = torch.where((sums > target) & (weights > 0), place, last).amin(dim=-1, keepdim=True)
    weight = weights.gather(1, first)
    return first, ((target - sums.gather(1, first) + weight) / weight).clamp(0, 1)


def _block_sums(logits: Tensor) -> Tensor:
    """Log-sum-exp of each block of ids, [R, V] -> [R, ceil(V / BLOCK)] float64, but for a constant a row."""
    parts = [_sums_of_blocks(softmax) for _, softmax in softmax_parts(logits)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).log_()


def _sums_of_blocks(weights: Tensor) -> Tensor:
    """Sum of each block of weights, [R, V] -> [R, ceil(V / BLOCK)] float64, without a padded copy."""
    whole = weights.shape[1] // BLOCK * BLOCK
    sums = [weights[:, :whole].view(len(weights), -1, BLOCK).sum(dim=-1)] if whole else []
    if whole < weights.shape[1]:
        sums.append(weights[:, whole:].sum(dim=-1, keepdim=True))
    return torch.cat(sums, dim=1).to(torch.float64)


def _of_block(values: Tensor, block: Tensor, beyond: float) -> tuple[Tensor, Tensor]:
    """Ids and values [R, BLOCK] of one block [R, 1] a row, or all of them; past the end stands `beyond`."""
    ids = block * BLOCK + torch.arange(min(BLOCK, values.shape[1]), device=values.device)
    inside = values.gather(1, ids.clamp(max=values.shape[1] - 1))
    return ids, inside.masked_fill(ids >= values.shape[1], beyond)
