"""The shapes of decode steps: which rows they have, and how much room their buffers."""

import pytest

from gencli.core.step import Feed
from gencli.models.kv.static_steps import roomy, step_rows


def rows(*lanes, spare, most=0):
    found = step_rows([Feed(lane, 5, (1,)) for lane in lanes], spare, most=most)
    return found.count, [*found.places], found.num_held, found.in_place


@pytest.mark.parametrize(
    ("lanes", "spare", "found"),
    [
        ((0,), 1, (1, [0], 1, False)),
        ((2, 0, 1), 3, (4, [0, 1, 2], 4, False)),  # a row more than is fed writes to the spare one
        ((7, 3), 0, (2, [0, 1], 8, False)),
    ],
    ids=str,
)
def test_rows_come_as_they_are_fed(lanes, spare, found):
    assert rows(*lanes, spare=spare) == found


@pytest.mark.parametrize(
    ("lanes", "spare", "found"),
    [
        ((0,), 1, (1, [0], 1, True)),
        ((2, 0, 1), 3, (4, [2, 0, 1], 4, True)),
        ((0, 1, 2, 3, 4), 5, (6, [0, 1, 2, 3, 4], 6, True)),  # there are no eight rows
        ((3, 0), 1, (4, [3, 0], 4, True)),
        ((4, 0), 1, (2, [0, 1], 5, False)),  # more idle rows than fed ones
        ((3,), 0, (1, [0], 4, False)),
    ],
    ids=str,
)
def test_rows_are_in_place_where_few_are_idle(lanes, spare, found):
    assert rows(*lanes, spare=spare, most=6) == found


def test_capacity_grows_in_few_steps_with_little_to_spare():
    lengths = range(1, 20_000)
    sizes = sorted({roomy(length, 10**6) for length in lengths})
    assert len(sizes) < 25
    assert all(
        length <= roomy(length, 10**6) <= max(256, length + 256, 1.25 * length + 1) for length in lengths
    )
    assert roomy(900, 1000) == 1024  # no more than the context
