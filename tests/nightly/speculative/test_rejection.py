"""Verified by rejection, texts of the engine follow the distribution that they have without drafts."""

from gencli.speculative.draft_model import ModelDrafter
from tests.slow.speculative.test_rejection import (
    CHAINS,
    Tables,
    check,
    check_is_noticed,
    check_through_text,
    check_without_overlap,
    measured,
)


def test_texts_have_the_distribution_of_each_chain():
    for name in CHAINS:
        check(name)
    check_without_overlap("truncated")


def test_improbable_drafts_may_be_dropped():
    """Their noise is not the target's, and what was kept was drawn from what is kept."""
    tables = Tables.make()
    found, stood = measured("penalised", ModelDrafter(tables.draft), tables, least=0.3)
    assert not found.is_wide
    assert 0 < stood < 1


def test_none_of_the_drafts_through_text_was_drawn():
    check_through_text(0.0)


def test_they_are_noticed_with_each_chain():
    for name in CHAINS:
        check_is_noticed(name)


def test_texts_have_the_distribution_that_they_have_without_drafts():
    check("all")


def test_drafts_through_text_were_not_drawn():
    check_through_text(0.3)
