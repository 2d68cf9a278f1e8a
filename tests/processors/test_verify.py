"""Drafts stand while they equal what the target chose; without drafts there is nothing special."""

import torch

from processors.history import History
from processors.rows import Rows
from processors.verification import matched, verify


def rows_of(drafts):
    history = History(slots=len(drafts))
    for slot in range(len(drafts)):
        history.admit(slot, [7])
    return Rows.build(history, range(len(drafts)), drafts)


def stands(sampled, drafts):
    rows = rows_of(drafts)
    tokens, counts = verify(torch.tensor(sampled), rows)
    found = [row[:count] for row, count in zip(tokens.tolist(), counts.tolist(), strict=True)]
    assert matched(sampled, rows) == found  # on the host
    return found


def test_without_drafts_the_sampled_token_stands():
    assert stands([4, 5, 6], [(), (), ()]) == [[4], [5], [6]]


def test_all_accepted_drafts_give_a_bonus_token():
    assert stands([1, 2, 3], [(1, 2)]) == [[1, 2, 3]]


def test_the_first_difference_is_corrected_and_ends_the_run():
    assert stands([1, 9, 3], [(1, 2)]) == [[1, 9]]
    assert stands([8, 2, 3], [(1, 2)]) == [[8]]


def test_requests_with_different_numbers_of_drafts_share_a_step():
    sampled = [5, 1, 2, 3, 7, 0]
    assert stands(sampled, [(), (1, 2), (7,)]) == [[5], [1, 2, 3], [7, 0]]


def test_a_failed_row_ends_the_run_and_stays_visible():
    assert stands([1, -1, 3], [(1, 2)]) == [[1, -1]]
    assert stands([-1, 4, 1], [(), (4,)]) == [[-1], [4, 1]]
