"""Slots and KV lanes: which one a request takes, what it shares and keeps, sessions, long rope."""

from itertools import product

import torch

from tests.engine.test_slot_state import model, requests, run, runner
from tests.slow.engine.test_slot_state import NEGATIVES, check, check_companions, expected

torch.set_num_threads(1)


def test_texts_are_those_of_fresh_passes_with_each_drafter_and_batch():
    for case in product(("", "ngram", "suffix", "model", "early-exit"), (16, None), (1, 3, 8)):
        check(*case)
    for case in product((16, None), NEGATIVES):
        check_companions(*case)


def test_samples_cross_the_switch_by_themselves():
    found = run(runner(), requests(n=3), max_batch=4, step_tokens=16)
    assert found == expected(n=3)
