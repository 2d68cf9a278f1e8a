"""Drafts of a model: its launches, and its choices on a device, with each chain."""

from tests.slow.speculative.test_draft_model import LAUNCHES, XTC, check_choices, check_launches, needs_2_13


@needs_2_13
def test_a_draft_token_of_each_chain_launches_no_more_kernels_than_the_table_says():
    check_launches(LAUNCHES)


def test_a_draft_token_of_each_chain_is_that_of_the_cpu():
    check_choices((*LAUNCHES, XTC))
