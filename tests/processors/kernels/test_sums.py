"""Sums over rows: the kernels, interpreted, have PyTorch's values and one order for any number of rows."""

import torch

from processors.kernels.operations import row_cumsums, row_logsumexps, row_sums
from tests.sham import CUDA, sham_device


def some(rows, width, dtype=torch.float64):
    return torch.rand(rows, width, dtype=dtype, generator=torch.Generator().manual_seed(width))


def test_on_a_gpu_each_is_one_launch_and_of_the_same_value():
    values = torch.stack([some(1, 300)[0].log(), torch.full((300,), -torch.inf)])
    with sham_device() as seen:
        there = values.to(CUDA)
        seen.clear()
        found = [row_sums(there), row_cumsums(there)]
        assert dict(seen.launches) == {"row_sums": 1, "row_cumsums": 1}
        found.append(row_logsumexps(there))
    expected = row_sums(values), row_cumsums(values), row_logsumexps(values)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.host, other)
