"""Stages with conditions give the text of a loop that changes the chain by hand at the borders."""

from itertools import product

from tests.slow.engine.test_conditions import CHAINS, CONDITIONS, check_by_hand, check_stages


def test_the_text_of_each_chain_and_condition_is_that_of_a_loop_by_hand():
    for chain, condition in product(CHAINS, CONDITIONS):
        check_by_hand(chain, condition)


def test_every_stage_with_other_values_acts_in_its_place_only():
    check_stages(1)


def test_every_stage_acts_in_its_place_only_and_takes_drafts_there():
    check_stages(0)
