"""The twins of the samplers choose what the samplers choose, and the twins need no torch."""

import math
import subprocess
import sys

import torch

from processors.sampler import greedy
from tests.processors.reference import draw_twins as samplers

INF = math.inf


def rows_of(width):
    logits = 2 * torch.randn(12, width, generator=torch.Generator().manual_seed(width))
    logits[1::3] = logits[1::3].round()
    logits[:, ::4] = -INF
    return logits


def test_greedy_takes_the_lowest_id_of_a_tie_as_its_twin_does():
    logits = rows_of(50).round()
    assert greedy(logits).tolist() == [samplers.greedy(row) for row in logits.tolist()]


def test_the_twins_import_no_torch():
    code = "import sys, tests.processors.reference.twins; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
