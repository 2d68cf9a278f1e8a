"""Masks, entries 35, 36 and 39 of the semantics."""

import re

import pytest

from processors.errors import ParamError, TokenError
from tests.helpers.refusal import refusal

FLAT = [0.0] * 6


def test_tail_masks_from_its_size_on(kept):
    assert kept("tail", {"size": 4}, FLAT) == [0, 1, 2, 3]


def test_a_tail_beyond_the_width_changes_nothing(kept):
    assert kept("tail", {"size": 9}, FLAT) == [0, 1, 2, 3, 4, 5]


def test_allowed_keeps_the_listed_ids_and_their_logits(run):
    masked = -float("inf")
    assert run("allowed", {"ids": [3, 1, 3]}, [1, 2, 3, 4.5]) == [masked, 2, masked, 4.5]


def test_an_empty_allowed_list_is_refused(run):
    with pytest.raises(ParamError, match="empty list"):
        run("allowed", {"ids": []}, FLAT)


def test_suppress_masks_the_listed_ids(kept):
    assert kept("suppress", {"ids": [0, 5, 0]}, FLAT) == [1, 2, 3, 4]


def test_begin_suppress_masks_the_listed_ids_in_the_first_token_alone(kept):
    assert kept("begin_suppress", {"ids": [0, 5]}, FLAT, prompt=(3,)) == [1, 2, 3, 4]
    assert kept("begin_suppress", {"ids": [0, 5]}, FLAT, output=(3,)) == [0, 1, 2, 3, 4, 5]
    assert kept("begin_suppress", {"ids": [0, 5]}, FLAT, drafts=(3,)) == [0, 1, 2, 3, 4, 5]


def test_an_id_beyond_the_logits_is_refused(run):
    for stage in ["allowed", "suppress", "begin_suppress"]:
        assert re.search(
            f"{stage} names token 6, but ids go from 0 to 5",
            refusal(TokenError, run, stage, {"ids": [1, 6]}, FLAT),
        ), stage


def test_an_id_that_only_the_model_has_is_refused(run, vocabulary):
    size = vocabulary.vocab_size
    with pytest.raises(TokenError, match=f"token {size}"):
        run("allowed", {"ids": [size]}, [0.0] * (size + 8), vocabulary=vocabulary)
