"""The twins of the samplers choose what the samplers choose, and the twins need no torch."""

import math
import subprocess
import sys

import torch

from processors.reference import samplers
from processors.sampler import _two_level, greedy, gumbel_max, inverse_cdf

INF = math.inf


def rows_of(width):
    logits = 2 * torch.randn(12, width, generator=torch.Generator().manual_seed(width))
    logits[1::3] = logits[1::3].round()
    logits[:, ::4] = -INF
    return logits


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


def test_greedy_takes_the_lowest_id_of_a_tie_as_its_twin_does():
    logits = rows_of(50).round()
    assert greedy(logits).tolist() == [samplers.greedy(row) for row in logits.tolist()]


def test_the_twins_import_no_torch():
    code = "import sys, processors.reference, processors.reference.samplers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
