"""How close a draw was: against the definitions, in float64."""

import math

import pytest
import torch

from processors.explain_rows import Snapshot, race
from processors.rng import Stream, row_keys, uniform
from processors.sampler import greedy, gumbel_max, inverse_cdf
from tests.processors.explain.test_races import rows


def test_the_margin_of_a_uniform_number_is_to_the_nearer_neighbour():
    for row, seed, position in rows(500):
        token = int(inverse_cdf(row[None], seed, position))
        found = race("multinomial", Snapshot(row), token, seed, position)
        u = float(uniform(row_keys(seed, position, Stream.TOKEN), torch.zeros(1, dtype=torch.int64)))
        p = row.double().softmax(0)
        sums, ids = p.cumsum(0), p.nonzero().flatten().tolist()
        place = ids.index(token)
        ends = {}
        if place:
            ends[ids[place - 1]] = u - float(sums[token] - p[token])
        if place + 1 < len(ids):
            ends[ids[place + 1]] = float(sums[token]) - u
        if not ends:
            assert (found.margin, found.runner_up) == (None, None)
        else:
            assert found.margin == pytest.approx(min(ends.values()), abs=1e-6)
            assert ends[found.runner_up] == pytest.approx(min(ends.values()), abs=1e-6)


def test_only_the_token_of_the_draw_has_a_margin_of_zero_or_more():
    for kind in ("gumbel", "multinomial", "greedy"):
        draw = {"gumbel": gumbel_max, "multinomial": inverse_cdf, "greedy": lambda row, *_: greedy(row)}[kind]
        for row, seed, position in rows(60):
            token = int(draw(row[None], seed, position))
            others = [other for other in (row > -math.inf).nonzero().flatten().tolist() if other != token]
            for one in (token, *others[:3]):
                margin = race(kind, Snapshot(row), one, seed, position).margin
                assert margin is None or (margin >= 0) == (one == token), kind
