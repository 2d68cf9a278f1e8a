"""Behind a whole chain, texts verified by rejection have the distribution that the chain gives them."""

import math

import torch

from tests.processors.rejection_grid import RISK, Gap


def test_right_counts_are_beyond_the_bound_about_once_in_a_million():
    for freedom in (4, 10, 60):
        half = Gap(0, 0.0, freedom).bound / 2
        beyond = math.exp(-half) * sum(half**k / math.factorial(k) for k in range(freedom // 2))
        assert RISK / 3 < beyond < RISK, freedom


def test_counts_are_compared_with_what_is_due():
    chances = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0], dtype=torch.float64)
    assert not Gap.of(torch.tensor([500.0, 310, 145, 45, 0]), chances).is_wide
    assert Gap.of(torch.tensor([400.0, 400, 150, 50, 0]), chances).is_wide
    assert Gap.of(torch.tensor([500.0, 300, 150, 49, 1]), chances).chi_square == math.inf
