"""The lengths of repeated suffixes, against comparing token by token."""

import random

import torch

from processors.history import History
from processors.rows import Rows
from processors.stages.repeats import Suffixes, suffix_lengths


def compared(tokens):
    """For each index j, how many tokens before j equal the last tokens."""
    found = []
    for place in range(len(tokens)):
        same = 0
        while same < place and tokens[place - 1 - same] == tokens[-1 - same]:
            same += 1
        found.append(same)
    return found


def test_lengths_are_those_of_a_comparison_token_by_token():
    for letters in [1, 2, 3, 9]:
        rng = random.Random(letters)
        for size in range(40):
            tokens = [rng.randrange(letters) for _ in range(size)]
            assert suffix_lengths(tokens) == compared(tokens), letters


def test_the_time_of_a_repetitive_text_grows_with_its_length_only():
    """8,000 equal tokens have 32 million equal pairs."""
    assert suffix_lengths([7] * 8000)[-3:] == [7997, 7998, 7999]


def test_lengths_that_grew_in_inference_mode_may_be_forked_outside_of_it():
    history, suffixes = History(), Suffixes(torch.device("cpu"))
    history.admit(0, [5] * 300)
    rows = Rows.build(history, [0])
    with torch.inference_mode():
        before = suffixes.gather(rows, rows.visible().ids)
    history.fork(0, 1, seed=0)
    suffixes.copy(0, 1)
    assert torch.equal(suffixes.gather(Rows.build(history, [1]), rows.visible().ids), before)
