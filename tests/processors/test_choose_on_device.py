"""On CUDA the end of a chain is a few kernels; their tokens are those of the stages and the sampler."""

import random

import pytest
import torch

from processors.choose_on_device import DeviceChoice
from tests.processors.test_choose import KINDS, PARTS, WIDTHS, admitted


def compare(chains, logits, draws="gumbel"):
    """The kernels' references compute on the CPU."""
    pipeline, sampler, rows = admitted(chains, logits.shape[1], draws)
    before = logits.clone()
    found = DeviceChoice(pipeline, sampler)(logits, rows)
    expected = sampler(pipeline(logits, rows), rows)
    assert torch.equal(found, expected), chains
    assert torch.equal(logits.nan_to_num(7.0), before.nan_to_num(7.0))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_random_chains_over_all_kinds_of_logits(kind):
    draw, generator = random.Random(kind), torch.Generator().manual_seed(len(kind))
    for _ in range(40):
        rows, width = draw.choice((1, 2, 5)), draw.choice(WIDTHS)
        logits = KINDS[kind](torch.randn(rows, width, generator=generator), generator)
        made = [" | ".join(filter(None, map(draw.choice, PARTS))) for _ in range(rows)]
        draws = [draw.choice(("gumbel", "gumbel", "greedy")) for _ in range(rows)]
        compare(made if draw.random() < 0.6 else made[:1] * rows, logits, draws)
