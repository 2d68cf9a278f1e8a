"""Where a text may end, entries 42 and 43, and where it has to."""

import re

import pytest
import torch
from transformers.generation.logits_process import BarkEosPrioritizerLogitsProcessor

from processors.errors import TokenError
from tests.helpers.refusal import refusal

FLAT = [0.0] * 6
ENDS = {"eos_ids": (1, 4), "stop_ids": (2,)}


def test_min_tokens_masks_every_end_of_text_and_stop_id(kept):
    assert kept("min_tokens", {"count": 2}, FLAT, output=(3,), **ENDS) == [0, 3, 5]


def test_min_tokens_is_over_once_the_count_is_there(kept):
    assert kept("min_tokens", {"count": 2}, FLAT, output=(3, 3), **ENDS) == [0, 1, 2, 3, 4, 5]


def test_the_prompt_does_not_count_as_output(kept):
    assert kept("min_tokens", {"count": 1}, FLAT, prompt=(3, 3, 3), **ENDS) == [0, 3, 5]


def test_visible_drafts_count_as_output(kept):
    assert kept("min_tokens", {"count": 2}, FLAT, drafts=(3, 3), **ENDS) == [0, 1, 2, 3, 4, 5]


def test_without_any_end_id_min_tokens_masks_nothing(kept):
    assert kept("min_tokens", {"count": 2}, FLAT) == [0, 1, 2, 3, 4, 5]


def test_ignore_eos_masks_all_end_of_text_ids_and_no_stop_id(kept):
    assert kept("ignore_eos", {"enabled": True}, FLAT, **ENDS) == [0, 2, 3, 5]


def test_an_end_of_text_id_beyond_the_logits_is_refused(run):
    for stage, params in [
        ("min_tokens", {"count": 1}),
        ("ignore_eos", {"enabled": True}),
        ("eos_above", {"p": 0.5}),
    ]:
        assert re.search("token 6", refusal(TokenError, run, stage, params, FLAT, eos_ids=(6,))), stage


def test_a_stop_id_beyond_the_logits_is_refused(run):
    with pytest.raises(TokenError, match="token 7"):
        run("min_tokens", {"count": 1}, FLAT, stop_ids=(7,))


def test_a_likely_end_is_the_only_choice(kept):
    logits = [0.0, 0.0, -9.0, -torch.inf]
    assert kept("eos_above", {"p": 0.3}, logits, eos_ids=(1, 2)) == [1, 2]
    assert kept("eos_above", {"p": 0.5}, logits, eos_ids=(1, 2)) == [0, 1, 2]  # more than p, not p itself
    assert kept("eos_above", {"p": 0.3}, logits, eos_ids=(2, 3)) == [0, 1, 2]
    assert kept("eos_above", {"p": 0.3}, logits) == [0, 1, 2]


def test_it_ends_where_transformers_ends_a_text(kept):
    logits = torch.randn(200, 30, generator=torch.Generator().manual_seed(0)) * 2
    theirs = BarkEosPrioritizerLogitsProcessor(torch.tensor([3, 7]), 0.1, "cpu")(None, logits.clone())
    ours = [kept("eos_above", {"p": 0.1}, row, eos_ids=(3, 7)) for row in logits.tolist()]
    assert ours == [torch.nonzero(row > -torch.inf).flatten().tolist() for row in theirs]
    assert {len(ids) for ids in ours} == {2, 30}
