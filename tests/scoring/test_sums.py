"""Totals over rows, their standard errors and intervals."""

import math
import random

import numpy as np
import pytest

from gencli.scoring.score_files import Sums
from gencli.scoring.text_scores import Totals


def record(values, *, num_bytes=40, words=7, **more):
    return {**Totals.of(values, num_bytes=num_bytes, words=words).record(), **more}


def rows(count=40):
    dice = random.Random(3)
    return [record([-dice.expovariate(0.4) for _ in range(dice.randint(3, 30))]) for _ in range(count)]


def test_groups_and_kinds_are_added_up_apart_and_errors_not_at_all():
    sums = Sums(samples=0, seed=0)
    for one in (
        record([-1.0, -2.0], group="a"),
        record([-3.0], group="b"),
        record([-5.0], group="a"),
        record([-4.0], group="a", greedy=True),
        {"error": {"type": "UsageError", "message": "x"}, "group": "a"},
        {"choices": [], "group": "a"},
    ):
        sums.add(one)
    found = {(one["kind"], one["group"]): one for one in sums.records()}
    assert {key: (one["logprob"], one["scored"], one["rows"]) for key, one in found.items()} == {
        ("texts", "a"): (-8.0, 3, 2),
        ("texts", "b"): (-3.0, 1, 1),
        ("continuations", "a"): (-4.0, 1, 1),
    }
    assert found["texts", "a"]["squares"] == 30
    assert found["texts", "a"]["perplexity_interval"] is None


def test_a_record_reads_back_as_its_totals():
    for values in ([-1.0, -2.5], [-1.0, -math.inf, -2.0]):
        totals = Totals.of(values, num_bytes=9, words=2)
        assert Totals.of_record(totals.record()) == totals


def test_a_banned_token_leaves_its_group_without_a_sum():
    sums = Sums(samples=100, seed=0)
    for values in ([-1.0, -math.inf], [-1.0, -2.0]):
        sums.add(record(values))
    (found,) = sums.records()
    assert (found["logprob"], found["perplexity"], found["banned"], found["possible"]) == (
        None, None, 1, -4.0,
    )  # fmt: skip
    assert found["perplexity_interval"] is None
    (line,) = sums.lines()
    assert "3 tokens of 2 rows; 1 more tokens are banned" in line


def test_intervals_are_those_of_the_plain_bootstrap_and_depend_on_the_seed_only():
    found = rows()
    intervals = []
    for seed in (1, 1, 2):
        sums = Sums(samples=2000, seed=seed)
        for one in found:
            sums.add(one)
        intervals.append(sums.records()[0]["perplexity_interval"])
    assert intervals[0] == intervals[1] != intervals[2]
    dice, values = random.Random(9), []
    for _ in range(2000):
        drawn = dice.choices(found, k=len(found))
        values.append(math.exp(-sum(one["logprob"] for one in drawn) / sum(one["scored"] for one in drawn)))
    assert intervals[0] == pytest.approx([float(x) for x in np.percentile(values, (2.5, 97.5))], rel=0.02)
