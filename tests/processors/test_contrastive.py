"""The scores of contrastive search are those of its twin."""

from itertools import product

import pytest
import torch

from processors.sampler import contrastive_scores, directions
from tests.processors.reference import draw_twins as reference


def test_scores_are_those_of_the_twin():
    for alpha, (count, length) in product((0.0, 0.3, 0.6, 1.0), ((1, 1), (4, 1), (5, 40))):
        draw = torch.Generator().manual_seed(count)
        states, before = (torch.randn(size, 16, generator=draw) for size in (count, length))
        chances = torch.rand(count, generator=draw, dtype=torch.float64)
        found = contrastive_scores(chances, directions(states), directions(before), alpha)
        twin = reference.contrastive_scores(chances.tolist(), states.tolist(), before.tolist(), alpha)
        assert found.tolist() == pytest.approx(twin, abs=1e-6), (alpha, count, length)


def test_a_state_of_zeros_is_like_no_other():
    nothing, one = torch.zeros(1, 3), directions(torch.ones(1, 3, dtype=torch.bfloat16))
    half = torch.full((1,), 0.5, dtype=torch.float64)
    assert contrastive_scores(half, directions(nothing), one, 0.5).tolist() == [0.25]
    assert reference.contrastive_scores([0.5], nothing.tolist(), one.tolist(), 0.5) == [0.25]
