"""skew, entry 21: the distribution of an inverse CDF with a bent random number."""

import math

import pytest
import torch

INF = math.inf
TEN = [math.log(p) for p in (0.42, 0.21, 0.14, 0.09, 0.06, 0.04, 0.02, 0.01, 0.006, 0.004)]


def probabilities(logits):
    return torch.tensor(logits, dtype=torch.float64).softmax(0)


def test_tokens_come_as_often_as_with_a_bent_random_number(run):
    for s in [-1.5, -0.3, 0.4, 2.0]:
        bent = ((torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000) ** math.exp(-s)
        drawn = torch.searchsorted(probabilities(TEN).cumsum(0), bent).clamp(max=9)
        expected = torch.bincount(drawn, minlength=10).double() / 200_000
        assert torch.allclose(probabilities(run("skew", {"s": s}, TEN)), expected, atol=1e-4), s


def test_the_order_of_ids_does_not_matter_and_equal_logits_go_by_id(run):
    first, second, third = run("skew", {"s": 1}, [1.0, 1.0, 1.0])
    assert first < second < third
    assert run("skew", {"s": 1}, [0.0, 2.0, -INF, 1.0]) == [
        run("skew", {"s": 1}, [2.0, 1.0, 0.0])[place] if place is not None else -INF
        for place in (2, 0, None, 1)
    ]


def test_unlikely_tokens_stay_as_unlikely_as_they_were_times_the_power(run):
    for s in [-10, -1, 1, 10]:
        logits = run("skew", {"s": s}, [0.0, -50.0, -200.0, -1e5, -3e38])
        assert logits[1:4] == pytest.approx([-50 + s, -200 + s, -1e5 + s], rel=1e-6), s
        assert -INF < logits[4] < -1e38, s
