"""The largest logits are those of the whole row, and masses are within their bound of float64 ones."""

import math
from itertools import product

import torch

from processors.kernels.operations import block_masses, largest, total_mass

WIDTHS = (64, 4097, 50_257, 65_536)


def logits_of(rows, width):
    logits = 3 * torch.randn(rows, width, generator=torch.Generator().manual_seed(width))
    logits[1], logits[2, ::2] = logits[1].round(), -math.inf
    return logits


def test_the_largest_are_those_of_the_whole_row():
    for width, count in product(WIDTHS, (1, 51, 64)):
        logits = logits_of(4, width)
        logits[0, -1], logits[3, 5] = 99.0, math.nan
        values, ids = largest(logits, count)
        same = logits.topk(count, dim=1).values
        assert torch.equal(values.nan_to_num(200.0), same.nan_to_num(200.0)), (width, count)
        assert torch.equal(logits.gather(1, ids).nan_to_num(200.0), values.nan_to_num(200.0)), (width, count)
        assert all(len(set(row)) == count for row in ids.tolist()), (width, count)


def test_masses_are_within_their_bound():
    for rows, width in product((3, 20), WIDTHS):
        logits, scale = logits_of(rows, width), torch.linspace(0.5, 3, rows)[:, None]
        peak = logits.amax(1, keepdim=True)
        exact = ((logits - peak).double() * scale).exp2()
        sums = torch.stack([part.sum(1) for part in exact.split(512, dim=1)], 1)
        total = total_mass(logits, peak, scale) / exact.sum(1, keepdim=True)
        assert ((total - 1).abs() < 1e-5).all(), (rows, width)
        found = block_masses(logits, peak, scale, 512)
        assert ((found / sums - 1).abs()[sums > 2.0**-60] < 1e-5).all(), (rows, width)
