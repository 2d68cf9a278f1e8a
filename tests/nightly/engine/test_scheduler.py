"""The scheduler: what each step feeds, its limit of tokens, the queue, and a full memory."""

from itertools import product

from tests.slow.engine.test_scheduler import POLICIES, check


def test_no_step_is_larger_than_any_limit_whatever_the_policies():
    for limit, policies in product((9, 16, 24, 60), (POLICIES, ["match"], ["rejection"])):
        check(limit, policies)
