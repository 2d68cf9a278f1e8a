"""xtc, entry 17; cases of peers are in vectors."""

import math

import pytest
import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.errors import ParamError
from processors.pipeline import Pipeline

INF = math.inf


DOWN = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]


TIED = [math.log(p) for p in (0.4, 0.2, 0.2, 0.2)]


ACTS = {"probability": 1, "threshold": 0.15}


def test_all_top_choices_but_the_least_likely_go(kept):
    assert kept("xtc", ACTS, DOWN) == [2, 3]


def test_one_top_choice_stays(kept):
    assert kept("xtc", {"probability": 1, "threshold": 0.35}, DOWN) == [0, 1, 2, 3]


def test_of_equally_likely_ones_the_lowest_id_stays_or_all_do(kept):
    assert kept("xtc", ACTS, TIED) == [1]
    assert kept("xtc", {**ACTS, "ties": "keep"}, TIED) == [1, 2, 3]
    assert kept("xtc", ACTS, [0.0] * 4) == [0]


def test_a_threshold_is_reached_or_exceeded(kept):
    for compare, ids in [("ge", [0]), ("gt", [0, 1])]:
        assert kept("xtc", {"probability": 1, "threshold": 0.5, "compare": compare}, [1.0, 1.0]) == ids, (
            compare
        )


def test_exempt_tokens_stay(kept):
    for on_exempt, exempt, ids in [
        ("keep", [0], [0, 2, 3]),
        ("keep", [2], [2, 3]),
        ("uncount", [2], [1, 2, 3]),
        ("uncount", [0], [0, 2, 3]),
        ("skip", [1], [0, 1, 2, 3]),
        ("skip", [2], [2, 3]),
        ("skip", [3], [2, 3]),
    ]:
        assert kept("xtc", {**ACTS, "exempt": exempt, "on_exempt": on_exempt}, DOWN) == ids, on_exempt


def test_the_end_of_the_text_and_line_feeds_stay_unless_said_otherwise(kept, vocabulary):
    (line_feed,) = vocabulary.encode("\n", special=False)
    logits = [-INF] * vocabulary.vocab_size
    for token, p in ((5, 0.2), (1, 0.3), (line_feed, 0.3), (6, 0.2)):
        logits[token] = math.log(p)
    env = {"vocabulary": vocabulary, "eos_ids": (1,)}
    assert kept("xtc", ACTS, logits, **env) == sorted([1, 5, line_feed])
    assert kept("xtc", {**ACTS, "exempt": ()}, logits, **env) == [5]


def test_nothing_goes_if_too_few_would_be_left(kept):
    assert kept("xtc", {**ACTS, "keep": 2}, DOWN) == [2, 3]
    assert kept("xtc", {**ACTS, "keep": 3}, DOWN) == [0, 1, 2, 3]


def test_the_expected_form_is_the_average_of_the_rolls(run):
    (excluded, left) = (torch.tensor(run("xtc", ACTS, DOWN)).softmax(0), torch.tensor(DOWN).softmax(0))
    for probability in (0.1, 0.5, 1):
        found = torch.tensor(run("xtc", {**ACTS, "probability": probability, "mode": "expected"}, DOWN))
        expected = probability * excluded + (1 - probability) * left
        torch.testing.assert_close(found.softmax(0), expected)


def test_a_threshold_that_cannot_act_is_noticed_once():
    for threshold, compare in [(0.51, "ge"), (0.5, "gt")]:
        pipeline = Pipeline(Env(4))
        for slot in range(3):
            pipeline.admit(
                slot, Chain.parse(f"xtc:probability=1,threshold={threshold},compare={compare}"), Admission()
            )
        (notice,) = pipeline.notices
        assert f"xtc has a threshold of {threshold}" in notice, threshold


def test_a_threshold_of_half_and_less_is_not_noticed():
    pipeline = Pipeline(Env(4))
    pipeline.admit(0, Chain.parse("xtc:probability=1,threshold=0.5"), Admission())
    assert pipeline.notices == []


def test_a_threshold_of_zero_is_refused_with_the_way_to_switch_it_off(run):
    with pytest.raises(ParamError, match="A probability of 0 switches it off"):
        run("xtc", {"probability": 1, "threshold": 0}, DOWN)
