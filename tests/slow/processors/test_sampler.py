"""Draws follow the softmax, depend on nothing but their own row, and never leave the support."""

import math
from itertools import product

import torch

from processors.chooser import sampled
from processors.history import History
from processors.rows import Rows
from processors.sampler import Sampler, _two_level, gumbel_max, inverse_cdf
from tests.processors.test_sampler import INF, chi_square, counts_of, masked_logits, sparse
from tests.sham import CUDA, sham_device

DRAWN = {
    "gumbel, plain": (gumbel_max, 300),
    "gumbel, sparse": (sparse, 300),
    "gumbel, two levels": (_two_level, 1300),
    "inverse CDF, one block": (inverse_cdf, 300),
    "inverse CDF, blocks": (inverse_cdf, 1300),
}


def test_40k_draws_follow_the_softmax():
    for name, (draw, width) in DRAWN.items():
        logits = masked_logits(width)
        counts = counts_of(draw, logits)
        statistic, freedom = chi_square(counts, logits)
        # The draws are counter-seeded, so this passes always or never; 4 sigma of the chi-square law.
        assert statistic < freedom + 4 * math.sqrt(2 * freedom), name
        assert counts[logits == -INF].sum() == 0, name


def mixed_rows(width):
    """Logits of rows with many and with few finite ones, and of broken ones; how each row draws."""
    logits = 3 * torch.randn(7, width, generator=torch.Generator().manual_seed(width))
    logits[1, 40:], logits[2, ::2], logits[3] = -INF, -INF, -INF
    logits[4, width // 2], logits[5, width - 1] = math.nan, INF
    return logits, ("gumbel",) * 6 + ("greedy",)


def test_a_few_kernels_draw_what_the_sampler_draws():
    for (most, draw), width in product(((5, None), (5, "greedy"), (7, "multinomial")), (300, 9001)):
        logits, draws = mixed_rows(width)
        draws = draws if draw is None else (draw,) * 6 + draws[6:]
        drawn = []
        for device in (torch.device("cpu"), CUDA):
            with sham_device() as seen:
                history, sampler = History(device, slots=7), Sampler()
                for slot, one in enumerate(draws):
                    history.admit(slot, [7], seed=slot)
                    sampler.admit(slot, one)
                rows, given = Rows.build(history, range(7)), logits.to(device)
                seen.clear()
                drawn.append(sampled(sampler, given, rows))
                launches = sum(seen.launches.values())
        assert drawn[1].tolist() == drawn[0].tolist(), (most, draw, width)
        assert launches <= most, (most, draw, width)


def test_a_wrong_distribution_would_be_noticed():
    logits = masked_logits(300)
    statistic, freedom = chi_square(counts_of(gumbel_max, logits), logits * 1.1)
    assert statistic > freedom + 4 * math.sqrt(2 * freedom)
