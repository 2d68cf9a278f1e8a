"""Ranked logits are those of a stable sort, however many are finite."""

import math

import torch

from processors.kernels.operations import ranked


def test_finite_logits_come_in_the_order_of_a_stable_sort():
    for masked in (0.0, 0.5, 0.95, 0.999, 1.0):
        generator = torch.Generator().manual_seed(3)
        logits = (4 * torch.randn(5, 700, generator=generator)).round(decimals=1)
        logits[0, 5], logits[0, 6], logits[0, 7] = 0.0, -0.0, 0.0
        logits[torch.rand(5, 700, generator=generator) < masked] = -math.inf
        values, ids = ranked(logits)
        expected, order = logits.sort(dim=1, descending=True, stable=True)
        width = values.shape[1]
        is_finite = expected[:, :width] > -math.inf
        assert torch.equal(values, expected[:, :width]), masked
        assert torch.equal(ids[is_finite], order[:, :width][is_finite]), masked
        assert not (expected[:, width:] > -math.inf).any(), masked
        assert torch.equal(logits.gather(1, ids), values), masked
