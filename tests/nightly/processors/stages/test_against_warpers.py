"""The truncating warpers of transformers: the same tokens, or a decision why not."""

from itertools import product

from tests.slow.processors.stages.test_against_warpers import KINDS, WARPERS, check


def test_the_same_tokens_stay_on_thousands_of_rows():
    for case, kind in product(WARPERS, KINDS):
        check(*case, kind, 10_000)
