"""Guidance moves log-probabilities away from the companion's, and forbids what either forbids."""

import math

import pytest
import torch

from processors.guidance import fold
from processors.reference.guidance import fold as plain_fold

INF = math.inf


def folded(logits, companion, scale, cutoff=0.0):
    rows = len(logits)
    return fold(logits, companion, torch.full((rows,), scale), torch.full((rows,), cutoff))


def random_pair(seed, width=50):
    generator = torch.Generator().manual_seed(seed)
    one, other = (3 * torch.randn(6, width, generator=generator) for _ in range(2))
    one[1, ::3], other[2, 1::4] = -INF, -INF
    return one, other


@pytest.mark.parametrize("cutoff", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0, 1.5, 7.0])
def test_every_row_is_that_of_the_plain_loop(scale, cutoff):
    one, other = random_pair(1)
    expected = [plain_fold(a, b, scale, cutoff) for a, b in zip(one.tolist(), other.tolist(), strict=True)]
    assert torch.allclose(folded(one, other, scale, cutoff), torch.tensor(expected), atol=2e-5)


def test_a_scale_of_one_is_the_distribution_itself_and_of_zero_the_companion():
    one, other = random_pair(2)
    assert torch.allclose(folded(one[3:], other[3:], 1.0), one[3:].log_softmax(-1), atol=1e-5)
    assert torch.allclose(folded(one[3:], other[3:], 0.0), other[3:].log_softmax(-1), atol=1e-5)


def test_what_either_forbids_stays_forbidden_and_a_nan_stays_one():
    one, other = torch.zeros(1, 4), torch.zeros(1, 4)
    one[0, 1], other[0, 2] = -INF, -INF
    assert (folded(one, other, 0.0) == -INF).tolist() == [[False, True, True, False]]
    assert folded(torch.full((1, 3), math.nan), torch.zeros(1, 3), 2.0).isnan().all()


def test_the_cutoff_keeps_what_the_expert_finds_plausible():
    expert, amateur = torch.tensor([[0.6, 0.3, 0.1]]).log(), torch.tensor([[0.905, 0.09, 0.005]]).log()
    assert folded(expert, amateur, 2.0, 0.4).argmax().item() == 1
    assert folded(expert, amateur, 2.0, 0.1).argmax().item() == 2


def test_halves_are_folded_in_float32():
    one, other = (side.to(torch.bfloat16) for side in random_pair(3))
    assert folded(one, other, 1.5).dtype == torch.float32
