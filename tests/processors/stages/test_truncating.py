"""What holds for every stage that truncates, taken from the registry."""

import math

import torch

from processors.catalog import BUILTIN, Phase
from processors.testing.examples import examples

INF = math.inf


TRUNCATING = [spec.name for spec in BUILTIN if spec.phase == Phase.TRUNCATE]


# Values of the main parameter, each looser than the one before.
LOOSER = {
    "top_n_sigma": (1e-3, 0.5, 1, 2, 4),
    "top_h": (0.01, 0.3, 0.6, 0.9, 1),
    "min_k": (0, 5, 50, 300, 5000),
    "min_p": (1, 0.5, 0.1, 0.01, 1e-6),
    "top_k": (1, 2, 5, 20, 100),
    "top_p": (0, 0.2, 0.5, 0.9, 0.999),
    "typical": (1e-6, 0.2, 0.5, 0.9, 0.999),
    "epsilon": (0.9, 0.1, 0.01, 1e-3, 1e-6),
    "eta": (0.9, 0.1, 0.01, 1e-3, 1e-6),
    "tfs": (0, 0.2, 0.5, 0.9, 0.999),
    "top_a": (1, 0.5, 0.1, 0.01, 1e-3),
    "p_less": (100, 10, 3, 2, 1.01),
}


# What a second pass leaves is what the first left; of the others it cuts more, and why.
IDEMPOTENT = {"min_p", "top_k", "epsilon"}


CUTS_AGAIN = {
    "top_n_sigma": "the standard deviation of what is left is smaller",
    "top_h": "it is a share of the entropy that is left",
    "min_k": "the steepest fall of what is left is an earlier one",
    "top_p": "it is a share of the mass that is left",
    "typical": "it is a share of the mass that is left, and the entropy is another",
    "eta": "the entropy that is left is smaller, so the cutoff is higher",
    "tfs": "it is a share of the curvature that is left",
    "top_a": "the square of the largest probability grows faster than the probabilities",
    "p_less": "the mean probability of what is left is higher",
}


def rows(count=12, width=300):
    """Random rows: plain, with ties, with masks, steep, with four tokens ahead. Multiples of 1/1024."""
    generator = torch.Generator().manual_seed(8)
    for number in range(count):
        row = torch.randn(width, generator=generator) * (1, 3, 30)[number % 3]
        row = row.round() if number % 2 else (row * 1024).round() / 1024
        row[:4] += 99 if number % 5 == 4 else 0
        if number % 4 > 1:
            row[torch.rand(width, generator=generator) < 0.5] = -INF
        yield row.tolist()


def settings(stage):
    params = next(spec for spec in BUILTIN if spec.name == stage).params
    return [example.to_mapping() for example in examples(params)]


def test_every_truncating_stage_is_here():
    assert set(LOOSER) == set(TRUNCATING)
    assert IDEMPOTENT | set(CUTS_AGAIN) == set(TRUNCATING)
