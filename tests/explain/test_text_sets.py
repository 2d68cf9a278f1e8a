"""The grid of a sweep and the measures of texts."""

import pytest

from gencli.errors import UsageError
from gencli.explain.text_sets import MOST_CELLS, cells, distinct, mean_of, read_axis, repetition


def test_values_are_read_and_other_axes_refused():
    for text, values in [
        ("temperature=0.2:1.4:0.2", ("0.2", "0.4", "0.6", "0.8", "1", "1.2", "1.4")),
        ("top_k=40:10:-10", ("40", "30", "20", "10")),
        ("min-p=0,0.05", ("0", "0.05")),
        ("seed=7:7:1", ("7",)),
        ("top_k=10:100:45", ("10", "55", "100")),
        ("sampler=gumbel,greedy", ("gumbel", "greedy")),
    ]:
        assert read_axis(text).values == values, text

    for text, said in [
        ("temp=1", "temperature"),
        ("temperature", "varies nothing"),
        ("temperature=", "varies nothing"),
        ("prompt=a", "cannot vary"),
        ("stop=a,b", "cannot vary"),
        ("model=a,b", "cannot vary"),
        ("temperature=0:1:0", "does not lead"),
        ("temperature=0:1:-1", "does not lead"),
        ("temperature=0:1:x", "no range"),
        ("temperature=0:nan:1", "too large"),
        ("temperature=0:1e300:1", "too large"),
        ("temperature=0:1:0.0000001", "at most 1000"),
        (f"temperature=0:1:0.{'0' * 200}1", "too long"),
        ("temperature=0.5,0.5", "twice"),
        ("temperature=-1", "has to be a number"),
        ("top_k=1.5,2", "not a whole number"),
        ("sampler=best", "not one of"),
    ]:
        with pytest.raises(UsageError, match=said):
            read_axis(text)


def test_the_last_axis_changes_fastest_and_the_grid_is_bounded():
    axes = [read_axis("top_k=1,2"), read_axis("min_p=0,0.1")]
    assert [tuple(cell.values()) for cell in cells(axes)] == [
        ("1", "0"), ("1", "0.1"), ("2", "0"), ("2", "0.1"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="varied twice"):
        cells([axes[0], axes[0]])
    with pytest.raises(UsageError, match=f"at most {MOST_CELLS}"):
        cells([read_axis("top_k=1:40:1"), read_axis("seed=1:40:1")])


def test_distinct_counts_different_runs_and_a_mean_what_was_measured():
    ids = [1, 2, 1, 2, 1]
    assert [distinct(ids, size) for size in (1, 2, 3, 5)] == [2 / 5, 2 / 4, 2 / 3, 1]
    assert distinct(ids, 6) is None
    assert repetition([1, 2, 3, 4] * 3) == pytest.approx(1 - 4 / 9)
    assert repetition([1, 2, 3]) is None

    assert mean_of([1.0, None, 3.0]) == 2
    assert mean_of([None]) is None
