"""Rows see the end of their output with their own drafts, and know when a context comes again."""

import torch

from processors.history import History
from processors.rng import are_repeated, last_ids, num_seen
from processors.rows import Rows


def rows(output, drafts=(), prompt=(7, 8)):
    history = History()
    history.admit(3, prompt)
    history.append([3], [output])
    return Rows.build(history, [3], [drafts] if drafts else ())


def test_the_last_ids_are_padded_before_the_output():
    ids, count = last_ids(rows([1, 2], [5, 6]), 3, -1)
    assert ids.tolist() == [[-1, 1, 2], [1, 2, 5], [2, 5, 6]]
    assert count.tolist() == [2, 3, 4]
    ids, count = last_ids(rows([1, 2]), 6, 0, prompt=True)
    assert ids.tolist() == [[0, 0, 7, 8, 1, 2]]
    assert count.tolist() == [4]
    assert num_seen(rows([1, 2], [5, 6])) == 4
    assert num_seen(rows([1, 2]), prompt=True) == 4


def test_a_context_is_repeated_if_it_was_within_the_history():
    def repeated(output, width, history, skip=0):
        ids, count = last_ids(rows(output), width + history, 0)
        return are_repeated(ids, count, width, skip=skip).tolist()[0]

    assert repeated([1, 2, 3, 1, 2], 2, 5)
    assert not repeated([1, 2, 3, 1, 2], 2, 2), "it was three tokens ago"
    assert not repeated([1, 2, 3, 1, 2], 2, 5, skip=3), "the first contexts do not count"
    assert repeated([0, 0], 2, 9), "zeros stand before the output"
    assert not repeated([], 2, 9)
    assert not torch.tensor(repeated([4], 1, 0))
