"""Stages on rows of one token or none, and on rows as wide as a vocabulary, with ties and masked tokens."""

import math

STRONGEST = [
    ("dynamic_temperature", {"min": 0.5, "max": 1.5}),
    ("edt", {"theta": 0.1}),
    ("smoothing", {"factor": 0.3}),
    ("skew", {"s": 1}),
    ("adaptive_p", {"target": 0.2}),
    ("xtc", {"probability": 1, "threshold": 0.15}),
    ("top_k", {"k": 1}),
    ("top_p", {"p": 0.5}),
    ("min_p", {"p": 0.5}),
    ("top_n_sigma", {"n": 0.01}),
    ("epsilon", {"cutoff": 0.999}),
    ("eta", {"cutoff": 0.999}),
    ("top_a", {"a": 1}),
    ("p_less", {"order": 100}),
    ("top_h", {"h": 0.01}),
    ("min_k", {"tau": 0}),
    ("typical", {"p": 0.01}),
    ("tfs", {"z": 0}),
    ("mirostat", {"version": 1}),
    ("mirostat", {"version": 2}),
]


def test_a_row_with_one_token_or_none_is_left_as_it_is(run):
    for stage, params in STRONGEST:
        for row in ([-math.inf, 2.5, -math.inf], [-math.inf] * 3, [2.5]):
            assert run(stage, params, row) == row, (stage, row)
