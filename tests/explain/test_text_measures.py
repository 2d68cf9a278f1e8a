"""Measures of texts against their definitions."""

import pytest

from gencli.explain.text_sets import distinct, mean_of, repetition


def test_distinct_counts_different_runs_and_a_mean_what_was_measured():
    ids = [1, 2, 1, 2, 1]
    assert [distinct(ids, size) for size in (1, 2, 3, 5)] == [2 / 5, 2 / 4, 2 / 3, 1]
    assert distinct(ids, 6) is None
    assert repetition([1, 2, 3, 4] * 3) == pytest.approx(1 - 4 / 9)
    assert repetition([1, 2, 3]) is None

    assert mean_of([1.0, None, 3.0]) == 2
    assert mean_of([None]) is None
