"""Policies of verification change no text, or keep the distribution of the target."""

from itertools import product

import pytest

from gencli.speculative.draft_model import ModelDrafter
from tests.slow.speculative.test_policies import (
    DRAFTERS,
    GUIDANCES,
    IN_GRAMMAR,
    LETTERS,
    PENALISED,
    STANDS,
    Tables,
    check,
    check_beside,
    check_clock,
    check_company,
    check_distribution,
    check_each_row,
    check_full_memory,
    check_greedy,
    check_is_noticed,
    check_lossy,
    check_on_a_model,
    check_policy_company,
    check_rejection,
    check_through_text,
    check_without_overlap,
    crowd,
    known,
    measured,
)
from tests.slow.speculative.test_policies import REJECTION_CHAINS as CHAINS
from tests.speculative.test_policies import mixed


def test_no_company_changes_a_text_of_any_drafter_and_policy():
    for least in (0.0, 0.2):
        check_policy_company(least, list(mixed(least=least)))


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_stage_gives_that_text_with_each_drafter_and_number_of_drafts(name):
    for tokens in range(1, 9):
        check(name, tokens)


def test_rows_with_drafts_of_each_drafter_stand_beside_others():
    for name in DRAFTERS:
        check_beside(name)


def test_memory_that_runs_out_changes_no_text():
    for name in ("suffix", "text", "half"):
        check_full_memory(name)


def test_on_a_model_no_drafter_changes_a_token():
    for name in ("auto", "early-exit", "ngram", "suffix", "tiny-draft", "tiny"):
        check_on_a_model(name)


def test_each_row_of_all_has_the_drafter_that_it_names_whatever_the_clock_says():
    check_each_row(1)
    check_clock(1)


def test_texts_have_the_distribution_of_each_guidance_and_within_a_grammar():
    for kind in ("negative", "last token", "contrast"):
        check_distribution(kind, "letters")
    for kind in ("negative", "contrast"):
        check_distribution(kind, "grammar")


def test_greedy_texts_of_each_guidance_and_chain():
    for case in product(GUIDANCES, (LETTERS, PENALISED, IN_GRAMMAR)):
        check_greedy(*case)


def test_lossy_policies_ask_for_the_probability_of_each_guidance():
    for case in product(GUIDANCES, STANDS):
        check_lossy(*case)


def test_no_company_changes_a_text_of_any_policy_guidance_and_chain():
    check_company(list(crowd()))


def test_texts_have_the_distribution_of_each_chain():
    for name in CHAINS:
        check_rejection(name)
    for name in ("truncated", "penalised"):
        check_without_overlap(name)


def test_improbable_drafts_may_be_dropped():
    """Their noise is not the target's, and what was kept was drawn from what is kept."""
    tables = Tables.make()
    found, stood = measured("penalised", ModelDrafter(tables.draft), tables, least=0.3)
    assert not found.is_wide
    assert 0 < stood < 1


def test_none_of_the_drafts_through_text_was_drawn():
    for least in (0.0, 0.3):
        check_through_text(least)


def test_they_are_noticed_with_each_chain():
    for name in CHAINS:
        check_is_noticed(name)
