"""top_n_sigma, epsilon, eta, top_a and p_less: entries 13 to 15; cases of peers are in vectors."""

import math

import torch

from processors.reference import REFERENCE, View
from processors.registry import builtin_registry

INF = math.inf
ON = [
    ("top_n_sigma", {"n": 0.01}),
    ("epsilon", {"cutoff": 0.999}),
    ("eta", {"cutoff": 0.999}),
    ("top_a", {"a": 1}),
    ("p_less", {"order": 100}),
]


def test_the_largest_stay_with_their_ties(kept):
    for stage, params in ON:
        assert kept(stage, params, [3.0, 8.0, 8.0, -INF, 1.0]) == [1, 2], stage
        assert kept(stage, {**params, "keep": 3}, [3.0, 8.0, 8.0, -INF, 1.0]) == [0, 1, 2], stage


def test_a_row_with_one_token_or_none_is_left_as_it_is(run):
    for stage, params in ON:
        assert run(stage, params, [-INF, 2.5, -INF]) == [-INF, 2.5, -INF], stage
        assert run(stage, params, [-INF] * 3) == [-INF] * 3, stage


def test_a_wide_row_is_that_of_the_reference(run):
    for scale in [0.01, 1.0, 8.0]:
        for stage, params in [
            ("top_n_sigma", {"n": 1.3}),
            ("epsilon", {"cutoff": 3e-5}),
            ("eta", {"cutoff": 3e-4}),
            ("top_a", {"a": 0.3}),
            ("p_less", {"order": 2.5}),
            ("p_less", {"order": 2, "norm": True}),
        ]:
            logits = (scale * torch.randn(40_000, generator=torch.Generator().manual_seed(4))).tolist()
            logits[7] = -INF
            logits = torch.tensor(logits).tolist()
            twin = REFERENCE[stage](logits, builtin_registry().load(stage).Params(**params), View())
            assert run(stage, params, logits) == twin, (scale, stage)
