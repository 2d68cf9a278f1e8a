"""Where logits are finite."""

import math

import pytest
import torch

from processors.kernels.finite import finite_places

INF = math.inf


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("width", [5, 31, 40_000, 40_007])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.9])
def test_the_places_are_those_of_all_finite_logits(rows, width, share):
    generator = torch.Generator().manual_seed(width)
    logits = torch.randn(rows, width, generator=generator)
    logits[torch.rand(rows, width, generator=generator) >= share] = -INF
    row, ids = finite_places(logits)
    found = torch.zeros(rows, width, dtype=torch.bool)
    found[row, ids] = True
    assert torch.equal(found, logits > -INF)
    assert len(row) == int(found.sum())
