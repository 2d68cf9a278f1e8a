"""Guidance moves log-probabilities away from the companion's, and forbids what either forbids."""

import math
from itertools import product

import torch

from processors.sampler import contrast_layers, fold
from tests.processors.reference.draw_twins import contrast_layers as plain_contrast
from tests.processors.reference.draw_twins import fold as plain_fold

INF = math.inf


def folded(logits, companion, scale, cutoff=0.0):
    rows = len(logits)
    return fold(logits, companion, torch.full((rows,), scale), torch.full((rows,), cutoff))


def random_pair(seed, width=50):
    generator = torch.Generator().manual_seed(seed)
    one, other = (3 * torch.randn(6, width, generator=generator) for _ in range(2))
    one[1, ::3], other[2, 1::4] = -INF, -INF
    return one, other


def test_every_row_is_that_of_the_plain_loop():
    one, other = random_pair(1)
    for case in product((0.0, 0.1, 1.0), (0.0, 0.5, 1.0, 1.5, 7.0)):
        cutoff, scale = case
        pairs = zip(one.tolist(), other.tolist(), strict=True)
        expected = [plain_fold(a, b, scale, cutoff) for a, b in pairs]
        assert torch.allclose(folded(one, other, scale, cutoff), torch.tensor(expected), atol=2e-5), case


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


def test_layers_are_contrasted_as_in_the_plain_loop():
    generator = torch.Generator().manual_seed(5)
    last, *early = (3 * torch.randn(6, 40, generator=generator) for _ in range(4))
    last[1, ::3] = -INF
    everywhere = torch.ones(6, dtype=torch.bool)
    for cutoff in (0.0, 0.1, 1.0):
        found = contrast_layers(last, [(one, everywhere) for one in early], torch.full((6,), cutoff))
        rows = zip(last.tolist(), *(one.tolist() for one in early), strict=True)
        expected = [plain_contrast(row, others, cutoff) for row, *others in rows]
        assert torch.allclose(found, torch.tensor(expected), atol=2e-5)


def test_a_row_takes_none_but_its_own_layers():
    last, one, other = torch.randn(3, 2, 30, generator=torch.Generator().manual_seed(6))
    own = torch.tensor([True, False])
    found = contrast_layers(last, [(one, own), (other, ~own)], torch.zeros(2))
    assert torch.allclose(found[0], last[0].log_softmax(-1) - one[0].log_softmax(-1), atol=1e-5)
    assert torch.allclose(found[1], last[1].log_softmax(-1) - other[1].log_softmax(-1), atol=1e-5)
