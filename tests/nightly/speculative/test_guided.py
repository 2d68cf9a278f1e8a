"""Drafts beside guidance and contrast: p is what the formula and the chain make of both models' logits."""

from itertools import product

from tests.slow.speculative.test_guided import (
    GUIDANCES,
    IN_GRAMMAR,
    LETTERS,
    PENALISED,
    STANDS,
    check_company,
    check_distribution,
    check_greedy,
    check_lossy,
    crowd,
)


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
