"""Masses are exp as integers, near enough that a sum of them decides as float64 does."""

import torch

from processors.kernels.choice.tables import Level, masses


def test_a_mass_is_near_exp():
    for heat, peak in ((0.8, 0.0), (0, 5.3), (0, 1000.1), (0, -7.0)):
        values = peak - torch.cat([10 * torch.rand(1, 5000), torch.rand(1, 500) ** 20], 1)
        found = masses(values, _levels(peak), torch.tensor([[heat]])).double() * 2.0**-59
        expected = (values.double() - torch.tensor(peak).double()).exp()
        assert torch.allclose(found, expected, rtol=2**-34, atol=2**-59), (heat, peak)


def test_the_largest_logit_has_all_of_the_unit_and_far_ones_have_none():
    values = torch.tensor([[0.0, -0.0, -1e-45, -64.0, -3e38, -torch.inf]])
    found = masses(values, _levels(0), torch.ones(1, 1))
    assert found.tolist() == [[2**59, 2**59, 2**59, 0, 0, 0]]


def _levels(peak):
    levels = torch.zeros(1, len(Level), dtype=torch.float64)
    levels[:, Level.PEAK], levels[:, Level.UNIT] = torch.tensor(float(peak)).float(), 59
    return levels
