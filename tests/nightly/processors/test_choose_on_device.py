"""On CUDA the end of a chain is a few kernels; their tokens are those of the stages and the sampler."""

import random

import pytest
import torch

from tests.processors.random_chains import KINDS, PARTS, random_cases
from tests.processors.test_choose_on_device import ORDERS
from tests.slow.processors.test_choose_on_device import DRAWS, check_processed, compare


@pytest.mark.parametrize("kind", KINDS)
def test_many_random_chains_over_all_kinds_of_logits(kind):
    for case in random_cases(kind, 60, mixed=0.6, draws=DRAWS):
        compare(*case)


def test_ten_thousand_rows():
    draw, generator = random.Random(1), torch.Generator().manual_seed(1)
    for _ in range(25):
        logits = 3 * torch.randn(400, draw.choice((100, 300, 700)), generator=generator)
        logits = logits.bfloat16() if draw.random() < 0.5 else logits
        one = " | ".join(filter(None, map(draw.choice, PARTS[1:])))
        chains = [draw.choice((one, *ORDERS)) for _ in range(400)]
        compare(chains, logits)


@pytest.mark.parametrize("kind", ["normal", "whole numbers", "masked", "faulty", "huge"])
def test_processed_logits_of_all_kinds_are_those_of_the_stages(kind):
    for width in (300, 5000):
        check_processed(kind, width)
