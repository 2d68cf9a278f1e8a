"""Rows go through the engine as each of them would alone, a few at a time."""

from itertools import product

from gencli.models.other_runners import FakeRunner
from tests.batch.test_loop import ROWS, alone, texts


def test_every_row_is_what_it_is_alone():
    for max_batch, order in product([3, 8], [1, -1]):
        assert texts(ROWS[::order], max_batch=max_batch) == alone(), (order, max_batch)


def test_every_row_is_what_it_is_alone_where_the_memory_is_small():
    assert texts(ROWS, max_batch=8, runner=FakeRunner(memory_lanes=2)) == alone()
