"""Padded lists: a scatter through one writes each value once, and sorted stays sorted."""

import torch

from processors.history import History
from processors.rows import Rows
from processors.stages.shared import Lists


def rows_of(*slots):
    return Rows.build(History(), slots)


def test_unused_places_repeat_the_last_number_also_after_growing():
    lists = Lists(torch.int64, torch.device("cpu"))
    lists.write(0, [3, 5])
    lists.write(20, [1, 2, 4, 8])
    numbers, filled = lists.gather(Rows.build(History(slots=32), [0, 20]))
    assert numbers.tolist() == [[3, 5, 5, 5], [1, 2, 4, 8]]
    assert filled.all()


def test_gather_is_no_wider_than_the_rows_need():
    lists = Lists(torch.int64, torch.device("cpu"))
    lists.write(0, list(range(100)))
    lists.write(1, [7])
    assert lists.gather(rows_of(1))[0].tolist() == [[7]]


def test_an_empty_list_says_so():
    lists = Lists(torch.int64, torch.device("cpu"))
    lists.write(0, [])
    numbers, filled = lists.gather(rows_of(0))
    assert numbers.shape == (1, 1)
    assert not filled.any()


def test_a_shorter_list_leaves_nothing_of_the_longer_one():
    lists = Lists(torch.float64, torch.device("cpu"))
    lists.write(0, [1.0, 2.0, 3.0])
    lists.write(0, [9.0])
    lists.copy(0, 1)
    assert lists.gather(rows_of(1))[0].tolist() == [[9.0]]
