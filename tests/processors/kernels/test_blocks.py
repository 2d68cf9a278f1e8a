"""What is found by blocks is what is found by looking at every logit."""

import math
from itertools import product

import torch

from processors.kernels.operations import best_values, few_finite

INF = math.inf


WIDTHS = (31, 40_000, 40_007)


def logits_of(rows, width, share, *, tied=False):
    """Random logits of which this share is finite; `tied` ones are whole numbers."""
    generator = torch.Generator().manual_seed(width)
    logits = 3 * torch.randn(rows, width, generator=generator)
    logits = logits.round() if tied else logits
    return logits.masked_fill_(torch.rand(rows, width, generator=generator) >= share, -INF)


def test_rows_with_few_finite_logits_are_listed_and_others_are_not():
    for rows, width, share in product((1, 7), WIDTHS, (0.0, 0.001, 0.02, 0.9)):
        logits = logits_of(rows, width, share)
        logits[::2, : width // 2] = -INF
        few, row, ids = few_finite(logits, 500)
        expected = (logits > -INF).sum(1) <= 500
        assert torch.equal(few, expected), (rows, width, share)
        listed = torch.zeros(rows, width, dtype=torch.bool)
        listed[row, ids] = True
        assert torch.equal(listed, (logits > -INF) & expected[:, None]), (rows, width, share)
        assert len(row) == int(listed.sum()), (rows, width, share)


def test_the_best_are_those_of_the_whole_row():
    for width, share, count in product(WIDTHS, (0.001, 1.0), (1, 30, 300)):
        logits = logits_of(5, width, share, tied=True)
        logits[1, 3] = math.nan
        count = min(count, width)
        expected = logits.topk(count, dim=1).values
        found = best_values(logits, count)
        assert torch.equal(found.nan_to_num(9.0), expected.nan_to_num(9.0)), (width, share, count)


def _unavailable(_):
    raise RuntimeError("Numpy is not available")


def test_without_numpy_the_best_are_the_same(monkeypatch):
    logits = logits_of(3, 40_000, 1.0)
    expected = [best_values(logits, count) for count in (300, 40_000)]
    monkeypatch.setattr(torch.Tensor, "numpy", _unavailable)
    assert torch.equal(best_values(logits, 300), expected[0])
    assert torch.equal(best_values(logits, 40_000), expected[1])
