"""dynamic_temperature, edt and smoothing: entries 18 and 19."""

import itertools
import math
import re

import pytest
import torch

from processors.chain import Chain, check_together
from processors.errors import ChainError, ParamError
from tests.helpers.refusal import refusal

INF = math.inf
TEN = [math.log(p) for p in (0.42, 0.21, 0.14, 0.09, 0.06, 0.04, 0.02, 0.01, 0.006, 0.004)]
ALL = [
    ("dynamic_temperature", {"min": 0.5, "max": 1.5}),
    ("edt", {"theta": 0.1}),
    ("smoothing", {"factor": 0.3}),
]


# The temperatures of this row were computed apart, with the standard library.
def test_the_row_is_divided_by_the_temperature_of_its_entropy(run):
    for stage, params, temperature in [
        ("dynamic_temperature", {"min": 0.5, "max": 1.5}, 1.22036027324),
        ("dynamic_temperature", {"min": 0.5, "max": 1.5, "exponent": 2}, 1.01891892326),
        ("dynamic_temperature", {"range": 0.5}, 1.22036027324),
        ("edt", {"theta": 0.1, "t0": 1}, 0.986637094643),
        ("edt", {"theta": 0.1, "t0": 0.5}, 0.986637094643 / 2),
    ]:
        expected = [(x - TEN[0]) / temperature for x in TEN]
        assert run(stage, params, TEN) == pytest.approx(expected, rel=1e-6), stage


def test_masked_tokens_count_neither_for_the_entropy_nor_for_its_largest_value(run):
    uniform = run("dynamic_temperature", {"min": 0.5, "max": 2}, [1.0, -INF, 1.0, -INF])
    assert uniform == [0, -INF, 0, -INF]
    below = run("dynamic_temperature", {"min": 0.5, "max": 2}, [9.0, *[-INF] * 500, 1.0])
    alone = run("dynamic_temperature", {"min": 0.5, "max": 2}, [9.0, 1.0])
    assert (below[0], below[-1]) == tuple(alone)


def test_a_temperature_of_zero_leaves_the_first_of_the_most_likely_tokens(run):
    for stage, params in [
        ("dynamic_temperature", {"min": 0, "max": 0}),
        ("dynamic_temperature", {"range": 2, "exponent": 1e6}),
        ("edt", {"theta": 1e300}),
    ]:
        logits = run(stage, params, [1.0, 3.0, -INF, 3.0])
        assert logits[1:3] == [0, -INF], stage
        assert -INF < logits[0] < -1e38, stage
        assert -INF < logits[3] < -1e38, stage


def test_smoothing_keeps_the_order_and_the_largest_logit(run):
    for factor, curve in [(0.05, 1), (0.3, 2), (4, 3)]:
        before = (5 * torch.randn(200, generator=torch.Generator().manual_seed(4))).tolist()
        after = run("smoothing", {"factor": factor, "curve": curve}, before)
        order = sorted(range(200), key=before.__getitem__)
        assert all(after[low] <= after[high] for low, high in itertools.pairwise(order)), factor
        assert max(after) == max(torch.tensor(before).tolist()), factor


def test_a_curve_that_would_change_the_order_is_refused_with_the_reason(run):
    for curve in [0.9, 3.1]:
        assert re.search(
            r">= 1 and <= 3\. Below 1 the least likely tokens",
            refusal(ParamError, run, "smoothing", {"factor": 0.3, "curve": curve}, [0.0]),
        ), curve


def test_a_relative_temperature_takes_in_that_of_the_chain():
    for chain, runs in [
        ("temperature=0.75 | dynamic_temperature:range=0.5", "dynamic_temperature:min=0.25,max=1.25"),
        (
            "temperature=0.25 | dynamic_temperature:range=0.5,exponent=2",
            "dynamic_temperature:min=0.0,max=0.75,exponent=2.0",
        ),
        ("temperature=0.7 | edt=0.1", "edt:theta=0.1,t0=0.7"),
        ("temperature=1 | edt=0.1", "edt=0.1"),
        ("temperature=0.7 | dynamic_temperature:range=0", "temperature=0.7"),
        ("temperature=0 | dynamic_temperature:range=0.5 | top_k=3", ""),
    ]:
        assert str(Chain.parse(chain).resolved()[0]) == runs, chain


def test_two_temperatures_are_refused_by_name():
    for chain, message in [
        ("dynamic_temperature:min=0.5", "has a min, but no max"),
        ("dynamic_temperature:max=0.5", "has a max, but no min"),
        ("dynamic_temperature:min=2,max=1", "min of 2.0, which is above its max of 1.0"),
        ("dynamic_temperature:min=1,max=2,range=1", "range around the temperature and also min or max"),
        ("temperature=0.5 | dynamic_temperature:min=1,max=2", "temperature and dynamic_temperature"),
        ("temperature=0.5 | edt:theta=1,t0=2", "temperature and edt contradict"),
        ("dynamic_temperature:range=1 | edt=1", "dynamic_temperature and edt contradict"),
    ]:
        assert re.search(message, refusal(ChainError, check_together, Chain.parse(chain))), chain
