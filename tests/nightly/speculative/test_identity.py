"""With drafts and without: the same tokens, texts and ends, for each drafter, stage and number of drafts."""

import pytest

from tests.slow.speculative.test_identity import (
    DRAFTERS,
    check,
    check_beside,
    check_full_memory,
    check_on_a_model,
    known,
)


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_stage_gives_that_text_with_each_drafter_and_number_of_drafts(name):
    for tokens in range(1, 9):
        check(name, tokens)


def test_rows_with_drafts_of_each_drafter_stand_beside_others():
    for name in DRAFTERS:
        check_beside(name)


def test_memory_that_runs_out_changes_no_text_of_other_drafters():
    for name in ("suffix", "text"):
        check_full_memory(name)


def test_on_a_model_no_drafter_changes_a_token():
    for name in ("ngram", "suffix", "tiny-draft", "tiny"):
        check_on_a_model(name)


def test_every_stage_gives_the_text_that_it_gives_without():
    for name, tokens in (("suffix", 8), ("half", 4), ("text", 3), ("known", 1)):
        check(name, tokens)


def test_rows_with_drafts_and_without_stand_side_by_side():
    check_beside("half")


def test_memory_that_runs_out_changes_no_text():
    check_full_memory("half")
