"""Temperature, entries 22 and 23."""

import itertools
import math

import torch

from processors.errors import ParamError
from tests.helpers.refusal import refusal

INF = math.inf


def test_logits_are_divided_and_the_largest_becomes_zero(run):
    assert run("temperature", {"temperature": 0.5}, [1.0, 3.0, -INF]) == [-4, 0, -INF]


def test_any_positive_temperature_leaves_legal_tokens_legal(run):
    for temperature in [1e-300, 1e-44, 1e-6, 0.01, 1e6, 1e300]:
        logits = run("temperature", {"temperature": temperature}, [3e38, 0.0, -3e38, -INF])
        assert all(map(math.isfinite, logits[:3])), temperature
        assert logits[3] == -INF, temperature


def test_temperature_keeps_the_order(run):
    for temperature in [0.05, 0.9, 30.0]:
        before = torch.randn(200, generator=torch.Generator().manual_seed(4)).tolist()
        after = run("temperature", {"temperature": temperature}, before)
        order = sorted(range(200), key=before.__getitem__)
        assert all(after[low] <= after[high] for low, high in itertools.pairwise(order)), temperature


def test_zero_leaves_the_first_of_the_largest_logits(run):
    assert run("temperature", {"temperature": 0}, [1.0, 2.0, 2.0]) == [-INF, 0, -INF]


def test_negative_and_non_finite_temperatures_are_refused(run):
    for temperature in [-1, math.nan, INF]:
        assert refusal(ParamError, run, "temperature", {"temperature": temperature}, [0.0]), temperature


def test_a_row_that_is_masked_throughout_stays_so(run):
    assert run("temperature", {"temperature": 0.5}, [-INF, -INF]) == [-INF, -INF]
