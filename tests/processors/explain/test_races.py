"""How close a draw was: against the definitions, in float64."""

import math

import torch

from processors.explain_rows import Snapshot, race
from processors.rng import Stream, gumbel, row_keys
from processors.sampler import PLAIN_LIMIT, gumbel_max


def rows(count):
    """Rows of many widths, full, sparse and with two ids, each with a seed."""
    generator = torch.Generator().manual_seed(1)
    for number in range(count):
        width = (3, 300, 513, 1500, 5000)[number % 5]
        row = torch.randn(width, generator=generator) * 3
        if number % 2:
            row[torch.rand(width, generator=generator) < 0.9] = -math.inf
        if number % 7 == 0:
            row[2:] = -math.inf
        if (row > -math.inf).any():
            yield row, torch.tensor([number]), torch.tensor([3])


def test_the_margin_of_noise_is_to_the_next_id():
    for row, seed, position in rows(200):
        alive = (row > -math.inf).nonzero().flatten()
        if 2 <= len(alive) <= PLAIN_LIMIT:
            token = int(gumbel_max(row[None], seed, position))
            found = race("gumbel", Snapshot(row), token, seed, position)
            scores = row[alive] + gumbel(row_keys(seed, position, Stream.TOKEN), alive)
            best = scores.sort(descending=True)
            assert token == alive[best.indices[0]]
            assert found.runner_up == alive[best.indices[1]]
            assert found.margin == float(best.values[0] - best.values[1])
