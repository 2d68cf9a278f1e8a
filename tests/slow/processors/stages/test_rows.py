"""Stages on rows of one token or none, and on rows as wide as a vocabulary, with ties and masked tokens."""

import math
from itertools import product

import torch
from torch.testing import assert_close

from processors.registry import builtin_registry
from processors.testing.checks import View
from tests.processors.reference.twins import REFERENCE

WIDTH = 40_000


EVEN = tuple(range(0, WIDTH, 2))


SKEWED = slice(500, 2000)  # the twin of skew takes long


RESCALING = [
    ("dynamic_temperature", {"min": 0.5, "max": 1.5}),
    ("edt", {"theta": 0.1}),
    ("smoothing", {"factor": 0.3}),
    ("smoothing", {"factor": 0.02, "curve": 2.5}),
    ("skew", {"s": 0.7}),
    ("xtc", {"probability": 1, "threshold": 0.002, "mode": "expected"}),
]


TRUNCATING = [
    ("top_h", {"h": 0.6}),
    ("top_h", {"h": 0.9, "candidates": 3000, "renormalise": False}),
    ("min_k", {"tau": 0}),
    ("min_k", {"tau": 7000}),
    ("typical", {"p": 0.3}),
    ("typical", {"p": 0.95, "boundary": "strict", "ties": "keep"}),
    ("typical", {"p": 0.999, "keep": 20_000}),
    ("tfs", {"z": 0.3}),
    ("tfs", {"z": 0.99, "style": "kobold"}),
    ("top_n_sigma", {"n": 1.3}),
    ("epsilon", {"cutoff": 3e-5}),
    ("eta", {"cutoff": 3e-4}),
    ("top_a", {"a": 0.3}),
    ("p_less", {"order": 2.5}),
    ("p_less", {"order": 2, "norm": True}),
    ("mirostat", {"version": 1, "tau": 3}),
    ("mirostat", {"version": 1, "tau": 7}),
    ("mirostat", {"version": 2, "tau": 3}),
    ("mirostat", {"version": 2, "tau": 7.6}),
    ("xtc", {"probability": 1, "threshold": 0.001}),
    ("xtc", {"probability": 1, "threshold": 1e-7, "ties": "keep", "compare": "gt"}),
    ("xtc", {"probability": 1, "threshold": 0.002, "exempt": EVEN, "on_exempt": "uncount"}),
]


def wide(scale, *, has_ties=True):
    logits = scale * torch.randn(WIDTH, generator=torch.Generator().manual_seed(4))
    if has_ties:
        logits[1000:9000] = logits[1000:9000].round(decimals=1)
        logits[7:700] = -math.inf
    logits[7] = -math.inf
    return logits


def few():
    logits = torch.full((WIDTH,), -math.inf)
    logits[5::400] = torch.randn(100, generator=torch.Generator().manual_seed(4))
    return logits


def check(run, rows):
    for (stage, params), logits in product(RESCALING + TRUNCATING, rows):
        row = (logits[SKEWED] if stage == "skew" else logits).tolist()
        twin = REFERENCE[stage](row, builtin_registry().load(stage).Params(**params), View())
        after = run(stage, params, row)
        if (stage, params) in TRUNCATING:
            assert after == twin, (stage, params)
        else:
            case = f"{stage} {params}"
            assert_close(torch.tensor(after), torch.tensor(twin), rtol=1e-6, atol=1e-6, msg=case)


def test_a_wide_row_is_that_of_the_twin(run):
    check(run, [wide(1.0), few()])
