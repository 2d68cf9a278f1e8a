"""Distances of two distributions are those of their definitions."""

import math
from itertools import product

import pytest
import torch

from processors.explain_rows import divergence


def rows(seed, size=40):
    made = torch.randn(2, size, generator=torch.Generator().manual_seed(seed)) * 3
    return made[0], made[1]


def softmax(logits):
    weights = [math.exp(value) for value in logits.tolist()]
    return [weight / math.fsum(weights) for weight in weights]


def by_definition(p, q):
    """TV and KL(p || q) in bits, term by term."""
    tv = math.fsum(abs(x - y) for x, y in zip(p, q, strict=True)) / 2
    terms = [x * math.log2(x / y) if y else math.inf for x, y in zip(p, q, strict=True) if x]
    return tv, math.inf if math.inf in terms else math.fsum(terms)


def test_it_is_the_definition_term_by_term():
    for cut, seed in product(((), (0,), (1,), (0, 1)), range(5)):
        a, b = rows(seed)
        for index, row in enumerate((a, b)):
            if index in cut:
                row[row < row.median() + index] = -torch.inf
        found = divergence(a, b)
        p, q = softmax(a), softmax(b)
        assert (found.tv, found.kl_ab) == pytest.approx(by_definition(p, q), abs=1e-12), (cut, seed)
        assert (found.tv, found.kl_ba) == pytest.approx(by_definition(q, p), abs=1e-12), (cut, seed)


def test_equal_rows_are_not_apart_however_they_are_scaled():
    a, _ = rows(1)
    same, moved = divergence(a, a.clone()), divergence(a, a + 5)
    assert (same.tv, same.kl_ab, same.kl_ba) == (0, 0, 0)
    assert (moved.tv, moved.kl_ab, moved.kl_ba) == pytest.approx((0, 0, 0), abs=1e-6)


def test_rows_without_a_common_id_are_as_far_apart_as_can_be():
    a, b = torch.full((2, 6), -torch.inf)
    a[:2], b[3:] = 0.0, torch.tensor([1.0, 2.0, 3.0])
    found = divergence(a, b)
    assert (found.tv, found.kl_ab, found.kl_ba) == (1, math.inf, math.inf)
