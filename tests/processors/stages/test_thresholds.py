"""top_n_sigma, epsilon, eta, top_a and p_less: entries 13 to 15; cases of peers are in vectors."""

import math

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
