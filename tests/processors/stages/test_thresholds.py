"""top_n_sigma, epsilon, eta, top_a and p_less: entries 13 to 15, and what their peers' tests say."""

import math

import pytest
import torch
from transformers.generation.logits_process import EpsilonLogitsWarper, EtaLogitsWarper

from processors.reference import REFERENCE, View
from processors.registry import builtin_registry

INF = math.inf
# A row of ten probabilities; what stays of it was computed apart, with the standard library.
TEN = [math.log(p) for p in (0.42, 0.21, 0.14, 0.09, 0.06, 0.04, 0.02, 0.01, 0.006, 0.004)]
FOUR = [math.log(p) for p in (0.1, 0.2, 0.3, 0.4)]


@pytest.mark.parametrize(
    ("stage", "params", "count"),
    [
        ("top_a", {"a": 0.1}, 7),
        ("top_a", {"a": 0.5}, 4),
        ("top_a", {"a": 1}, 2),
        ("epsilon", {"cutoff": 0.005}, 9),
        ("epsilon", {"cutoff": 0.05}, 5),
        ("epsilon", {"cutoff": 0.3}, 1),
        ("eta", {"cutoff": 0.005}, 9),
        ("eta", {"cutoff": 0.05}, 5),
        ("eta", {"cutoff": 0.3}, 3),
        ("p_less", {"order": 2}, 1),
        ("p_less", {"order": 2, "norm": True}, 2),
        ("p_less", {"order": 3}, 1),
        ("top_n_sigma", {"n": 0.5}, 2),
        ("top_n_sigma", {"n": 1}, 3),
        ("top_n_sigma", {"n": 1, "std": "sample"}, 4),
        ("top_n_sigma", {"n": 2}, 6),
        ("top_n_sigma", {"n": 2, "std": "sample"}, 7),
    ],
)
def test_the_most_likely_ones_stay(kept, stage, params, count):
    assert kept(stage, params, TEN) == list(range(count))


@pytest.mark.parametrize(
    ("stage", "params", "probabilities", "ids"),
    [
        # llama.cpp, tests/test-sampling.cpp
        ("top_n_sigma", {"n": 1}, (0.1, 0.2, 0.3, 0.4), [2, 3]),
        ("top_n_sigma", {"n": 3}, (0.1, 0.2, 0.3, 0.4), [0, 1, 2, 3]),
        # transformers, tests/generation/test_logits_process.py
        ("epsilon", {"cutoff": 0.1}, (0.87, 0.099, 0.001, 0.03), [0]),
        ("epsilon", {"cutoff": 0.1}, (0.4, 0.299, 0.101, 0.2), [0, 1, 2, 3]),
        ("eta", {"cutoff": 0.0625}, (0.01, 0.04, 0.9, 0.05), [2]),
        ("eta", {"cutoff": 0.0625}, (0.0, 0.1, 0.8, 0.1), [1, 2, 3]),
    ],
)
def test_the_cases_of_other_systems(kept, stage, params, probabilities, ids):
    assert kept(stage, params, [math.log(p) if p else -INF for p in probabilities]) == ids


ON = [
    ("top_n_sigma", {"n": 0.01}),
    ("epsilon", {"cutoff": 0.999}),
    ("eta", {"cutoff": 0.999}),
    ("top_a", {"a": 1}),
    ("p_less", {"order": 100}),
]


@pytest.mark.parametrize(("stage", "params"), ON)
def test_the_largest_stay_with_their_ties(kept, stage, params):
    assert kept(stage, params, [3.0, 8.0, 8.0, -INF, 1.0]) == [1, 2]
    assert kept(stage, {**params, "keep": 3}, [3.0, 8.0, 8.0, -INF, 1.0]) == [0, 1, 2]


@pytest.mark.parametrize(("stage", "params"), ON)
def test_a_row_with_one_token_or_none_is_left_as_it_is(run, stage, params):
    assert run(stage, params, [-INF, 2.5, -INF]) == [-INF, 2.5, -INF]
    assert run(stage, params, [-INF] * 3) == [-INF] * 3


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
@pytest.mark.parametrize(
    ("stage", "params"),
    [
        ("top_n_sigma", {"n": 1.3}),
        ("epsilon", {"cutoff": 3e-5}),
        ("eta", {"cutoff": 3e-4}),
        ("top_a", {"a": 0.3}),
        ("p_less", {"order": 2.5}),
        ("p_less", {"order": 2, "norm": True}),
    ],
)
def test_a_wide_row_is_that_of_the_reference(run, stage, params, scale):
    logits = (scale * torch.randn(40_000, generator=torch.Generator().manual_seed(4))).tolist()
    logits[7] = -INF
    logits = torch.tensor(logits).tolist()
    twin = REFERENCE[stage](logits, builtin_registry().load(stage).Params(**params), View())
    assert run(stage, params, logits) == twin


@pytest.mark.parametrize("cutoff", [3e-4, 0.01, 0.4])
def test_epsilon_and_eta_are_those_of_transformers(run, cutoff):
    for seed in range(20):
        row = 3 * torch.randn(500, generator=torch.Generator().manual_seed(seed))
        for stage, theirs in (("epsilon", EpsilonLogitsWarper(cutoff)), ("eta", EtaLogitsWarper(cutoff))):
            ours = torch.tensor(run(stage, {"cutoff": cutoff}, row.tolist()))
            assert torch.equal(ours, theirs(None, row[None].clone())[0])
