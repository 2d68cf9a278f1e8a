"""The choice of tokens: `Sampler` draws one token per row from processed logits (greedy, Gumbel-max or
inverse CDF), `Chooser` takes the fused end of a chain where it applies, and formulas combine
distributions (guidance, contrastive search).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from processors.base import Noise
from processors.catalog import Draw
from processors.graphs import upload
from processors.kernels.operations import few_finite, row_cumsums, row_sums, softmax_parts
from processors.rng import Stream, few_gumbel, gumbel, row_keys, uniform
from processors.rows import Rows

PLAIN_LIMIT = 4096  # finite logits up to which each id draws its own noise
BLOCK = 512  # ids per block of the two-level draw

EMPTY = -1  # token of a row whose logits are all masked
NON_FINITE = -2  # token of a row with NaN or +inf among the logits


class Inverted(NamedTuple):
    """Result of the search by inverse CDF: block weights [R, B], the ids of the chosen block [R, N].

    `inside` [R, N]: weights of these ids. `within` [R, 1]: the uniform number in the block, 0 to 1.
    """

    blocks: Tensor
    within: Tensor
    ids: Tensor
    inside: Tensor


class Sampler:
    """Chooses a token for each row by the draw method of its request.

    `version` changes with the draw method of any slot.
    """

    def __init__(self) -> None:
        self.version = 0
        self._draws: dict[int, Draw] = {}
        self._last: tuple[tuple[int, ...], tuple[Draw, ...]] = ((), ())  # slots of the last step, their draws

    def admit(self, slot: int, draw: Draw) -> None:
        self._draws[slot], self._last = draw, ((), ())
        self.version += 1

    def fork(self, source: int, target: int) -> None:
        """Give the target slot the draw method of the source."""
        self.admit(target, self._draws[source])

    def noise(self, slot: int, seed: int) -> Noise | None:
        """Return the noise function of the slot's draw; None unless it is Gumbel-max."""
        return partial(few_gumbel, seed, Stream.TOKEN) if self._draws[slot] == "gumbel" else None

    def __call__(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return tokens [R] int64 for logits [R, V] float32; EMPTY or NON_FINITE for a failed row."""
        draws = self.draws(rows)
        kinds = sorted(set(draws))
        if len(kinds) == 1:
            tokens = _choose(kinds[0], logits, rows)
        else:
            tokens = torch.empty_like(rows.slots)
            for kind in kinds:
                places = [i for i, draw in enumerate(draws) if draw == kind]
                at = upload(places, logits.device)
                tokens[at] = _choose(kind, logits[at], rows.select(places))
        # amax propagates NaN, so one number per row identifies empty and non-finite rows.
        top = logits.amax(dim=-1)
        return torch.where(top < torch.inf, torch.where(top == -torch.inf, EMPTY, tokens), NON_FINITE)

    def draws(self, rows: Rows) -> tuple[Draw, ...]:
        """Return the draw method of each row; cached while the slots stay the same."""
        if self._last[0] != rows.host_slots:
            self._last = rows.host_slots, tuple(self._draws[slot] for slot in rows.host_slots)
        return self._last[1]


def _choose(draw: Draw, logits: Tensor, rows: Rows) -> Tensor:
    if draw == "greedy":
        return greedy(logits)
    method = gumbel_max if draw == "gumbel" else inverse_cdf
    return method(logits, rows.seeds, rows.positions)


def greedy(logits: Tensor) -> Tensor:
    """Return the most likely token of each row [R]; the lowest id wins a tie."""
    return logits.argmax(dim=-1)


def gumbel_max(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """Draw from softmax(logits) for each row [R]: argmax(logits + Gumbel noise)."""
    if logits.shape[1] <= PLAIN_LIMIT:
        return _plain(logits, seeds, positions)
    if logits.is_cuda:  # on a GPU hashing every id is cheap, and selecting rows would synchronise
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
    """As `_plain`, restricted to ids [N] of rows [N]; 0 for a row without ids."""
    keys = row_keys(seeds, positions, Stream.TOKEN)
    scores = logits[row, ids] + gumbel(keys[row], ids)
    best = scores.new_full((len(logits),), -torch.inf).scatter_reduce(0, row, scores, "amax")
    beyond = logits.shape[1]
    winners = torch.where(scores == best[row], ids, beyond)
    lowest = torch.full_like(seeds, beyond).scatter_reduce(0, row, winners, "amin")
    return torch.where(lowest < beyond, lowest, 0)


def _two_level(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    block = _noisy_best(block_sums(logits), seeds, positions)
    return _inside(*_of_block(logits, block, -torch.inf), seeds, positions)


def draw_by_weight(weights: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """Draw by weights [R, V] >= 0 in two levels [R]; each row needs a weight above 0."""
    block = _noisy_best(_sums_of_blocks(weights).log_(), seeds, positions)
    ids, inside = _of_block(weights, block, 0)
    return _inside(ids, inside.log_(), seeds, positions)


def _noisy_best(sums: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    keys = row_keys(seeds, positions, Stream.BLOCK)[:, None]
    blocks = torch.arange(sums.shape[1], device=sums.device)
    return (sums + gumbel(keys, blocks)).argmax(dim=-1, keepdim=True)


def _inside(ids: Tensor, logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    keys = row_keys(seeds, positions, Stream.TOKEN)[:, None]
    choice = (logits + gumbel(keys, ids)).argmax(dim=-1, keepdim=True)
    return ids.gather(1, choice).squeeze(1)


def inverse_cdf(logits: Tensor, seeds: Tensor, positions: Tensor) -> Tensor:
    """Draw from softmax(logits) for each row [R] by inverse CDF: one uniform number, float64 sums."""
    drawn = find_block(logits, seeds, positions)
    choice, _ = invert(drawn.inside, drawn.within)
    return drawn.ids.gather(1, choice).squeeze(1)


def find_block(logits: Tensor, seeds: Tensor, positions: Tensor) -> Inverted:
    """Return for each row the block that contains the draw by inverse CDF."""
    keys = row_keys(seeds, positions, Stream.TOKEN)[:, None]
    sums = block_sums(logits)
    blocks = (sums - sums.amax(-1, keepdim=True)).exp()
    block, within = invert(blocks, uniform(keys, torch.zeros_like(keys)))
    ids, inside = _of_block(logits, block, -torch.inf)
    inside = inside.to(torch.float64)
    return Inverted(blocks, within, ids, (inside - inside.amax(-1, keepdim=True)).exp())


def invert(weights: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index [R, 1] at which the cumulative weights [R, N] exceed u times their sum.

    The second result [R, 1] is the position of u within that index's weight, 0 to 1. An index of weight 0 is
    never returned, whatever the rounding.
    """
    sums = row_cumsums(weights)
    target = u * sums[:, -1:]
    index = torch.arange(weights.shape[1], device=weights.device)
    last = torch.where(weights > 0, index, 0).amax(dim=-1, keepdim=True)
    first = torch.where((sums > target) & (weights > 0), index, last).amin(dim=-1, keepdim=True)
    weight = weights.gather(1, first)
    return first, ((target - sums.gather(1, first) + weight) / weight).clamp(0, 1)


def block_sums(logits: Tensor) -> Tensor:
    """Log-sum-exp of each block, [R, V] -> [R, ceil(V / BLOCK)] float64, up to a constant per row."""
    parts = [_sums_of_blocks(softmax) for _, softmax in softmax_parts(logits)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).log_()


def _sums_of_blocks(weights: Tensor) -> Tensor:
    """Sum of each block of weights, [R, V] -> [R, ceil(V / BLOCK)] float64, without a padded copy."""
    whole = weights.shape[1] // BLOCK * BLOCK
    sums = [weights[:, :whole].view(len(weights), -1, BLOCK).sum(dim=-1)] if whole else []
    if whole < weights.shape[1]:
        sums.append(row_sums(weights[:, whole:]))
    return torch.cat(sums, dim=1).to(torch.float64)


def _of_block(values: Tensor, block: Tensor, beyond: float) -> tuple[Tensor, Tensor]:
    """Return ids and values [R, min(BLOCK, V)] of one block [R, 1] per row; past V the value is `beyond`."""
    ids = block * BLOCK + torch.arange(min(BLOCK, values.shape[1]), device=values.device)
    inside = values.gather(1, ids.clamp(max=values.shape[1] - 1))
    return ids, inside.masked_fill(ids >= values.shape[1], beyond)


_LEAST = -1e30  # log-probability of an id masked by an early layer


def fold(logits: Tensor, companion: Tensor, scale: Tensor, cutoff: Tensor) -> Tensor:
    """Return u + scale (c - u) [G, V] float32, c and u the log-probabilities of logits and companion.

    logits and companion [G, V] are raw logits. scale [G] >= 0: 1 gives c, 0 gives u. Ids whose probability
    under c is below cutoff [G] times the largest are masked (plausibility constraint; 0 masks none). An id
    masked in either input is masked in the result.
    """
    least = logits.amax(dim=-1, keepdim=True) + cutoff[:, None].log()  # -inf for a cutoff of 0
    forbidden = (logits == -torch.inf) | (companion == -torch.inf) | (logits < least)
    c = logits.log_softmax(dim=-1, dtype=torch.float32)
    u = companion.log_softmax(dim=-1, dtype=torch.float32)
    return c.sub_(u).mul_(scale[:, None]).add_(u).masked_fill_(forbidden, -torch.inf)


def contrast_layers(logits: Tensor, early: Iterable[tuple[Tensor, Tensor]], cutoff: Tensor) -> Tensor:
    """Return c - u [D, V] float32: log-probabilities of the last layer minus those of an early one (DoLa).

    `early` yields for each early layer its logits [D, V], and the rows [D] bool for which it is a candidate.
    u of a row is the candidate layer farthest from c by Jensen-Shannon divergence; a row without candidates
    is c itself. Ids below cutoff [D] times the largest probability are masked, as in `fold`. An id masked in
    logits is masked in the result; an id masked only in the early layer has log-probability -1e30 there.
    """
    c = logits.log_softmax(dim=-1, dtype=torch.float32)
    u, farthest = torch.zeros_like(c), c.new_full((len(c), 1), -torch.inf)
    for layer, is_candidate in early:
        other = layer.log_softmax(dim=-1, dtype=torch.float32).clamp_(min=_LEAST)
        distance = _divergence(c, other)
        is_farther = is_candidate[:, None] & (distance > farthest)
        u, farthest = torch.where(is_farther, other, u), torch.where(is_farther, distance, farthest)
    least = c.amax(dim=-1, keepdim=True) + cutoff[:, None].log()
    return torch.where(c < least, -torch.inf, c.sub(u))


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence [D, 1] in nats of two rows of log-probabilities [D, V]."""
    chances = [logs.exp() for logs in (p, q)]
    middle = (chances[0] + chances[1]).mul_(0.5).log_()
    pairs = zip(chances, (p, q), strict=True)
    terms = [chance.mul_(logs - middle).nan_to_num_(0.0) for chance, logs in pairs]
    return row_sums(terms[0] + terms[1]).mul_(0.5)


def directions(states: Tensor) -> Tensor:
    """Return states [N, H] as float32 of length 1; a state of zeros stays as it is."""
    return normalize(states.float(), dim=-1)


def contrastive_scores(probabilities: Tensor, states: Tensor, before: Tensor, alpha: float) -> Tensor:
    """Return the scores [K] float64 of K candidates.

    `probabilities` [K] float64; `states` [K, H] and `before` [L, H] are directions, L > 0.
    """
    likeness = (states @ before.T).amax(dim=1).double()
    return (1 - alpha) * probabilities - alpha * likeness
