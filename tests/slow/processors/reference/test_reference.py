"""The twins of the samplers choose what the samplers choose, and the twins need no torch."""

import torch

from processors.sampler import _two_level, gumbel_max, inverse_cdf
from tests.processors.reference import draw_twins as samplers
from tests.processors.reference.test_reference import rows_of


def test_sampler_draws_what_its_twin_draws():
    for width in [5, 300, 1300]:
        for fast, twin in [
            (gumbel_max, samplers.gumbel_max),
            (_two_level, samplers.gumbel_max_in_blocks),
            (inverse_cdf, samplers.inverse_cdf),
        ]:
            logits, positions = rows_of(width), torch.arange(12)
            for seed in (0, 7, -3, 2**62):
                tokens = fast(logits, torch.full((12,), seed), positions).tolist()
                assert tokens == [twin(row, seed, i) for i, row in enumerate(logits.tolist())], (width, fast)
