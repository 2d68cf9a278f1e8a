"""Every request carries its own chain: other stages, orders and values beside it change nothing."""

from tests.slow.engine.test_random_chains import check


def test_more_random_chains_give_the_same_alone_and_in_one_batch():
    for seed in (1, 2):
        check(seed)
