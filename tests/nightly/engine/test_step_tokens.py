"""No step feeds more tokens than it may, drafts included; and what is cut or waits changes no text."""

from itertools import product

from tests.slow.engine.test_step_tokens import POLICIES, check


def test_no_step_is_larger_than_any_limit_whatever_the_policies():
    for limit, policies in product((9, 16, 24, 60), (POLICIES, ["match"], ["rejection"])):
        check(limit, policies)
