"""Heads that draft a block: texts are those without drafts, and wrong choices of how it is read are told."""

from dataclasses import replace

import pytest

from gencli.runtime.wiring import read_draft_head
from gencli.speculative.head_check import TEXT, agreements, better
from tests.speculative.agreeing_heads import TAPS, agreeing_dflash, make_model
from tests.speculative.head_runs import (
    CONDITIONS,
    REJECTION,
    choice,
    conditioned,
    drafted,
    loaded,
    outcomes,
    pair,
    plain,
)

SPECULATORS = "aux_hidden_state_layer_ids"


def checked(head):
    """The agreements of a head with its model on the text of the check."""
    made, runner, _ = read_draft_head(head, loaded("dflash"), choice("dflash"))
    return agreements(made, runner, loaded("dflash").tokenizer.encode(TEXT))


def test_a_right_head_stays_as_it_is():
    found = checked(pair("dflash").head)
    assert better(found) is found[0]
    assert found[0].shares[0] > 0.9
    assert {each.change: len(each.shares) for each in found} == {
        "": 4,
        "reads states 2, 3, 4": 4,
        "reads states 4, 5, 6": 4,
        "is causal": 4,
        "drafts from the newest token and the masks": 4,
        "has the mask 2046": 4,
    }
    assert max(each.shares[0] for each in found[1:]) < 0.1


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({SPECULATORS: [tap + 1 for tap in TAPS]}, "reads states 3, 4, 5"),
        ({SPECULATORS: [tap - 1 for tap in TAPS]}, "reads states 3, 4, 5"),  # the ids of DFlash's reference
        ({"causal": True}, "is not causal"),
        ({"sample_from_anchor": True}, "drafts from masks alone"),
        ({"mask_token_id": 2046}, "has the mask 2047"),
    ],
)
def test_what_makes_a_wrong_head_right_is_named(changes, right, tmp_path):
    head = agreeing_dflash(make_model())
    found = checked(str(replace(head, config=head.config | changes).write(tmp_path / "head")))
    assert better(found).change == right
    assert found[0].shares[0] < 0.1


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
def test_a_text_is_the_one_without_drafts(kind):
    requests = [one for name in CONDITIONS for one in conditioned(name, 1)]
    expected = outcomes(kind, plain(requests)).texts
    for max_batch in (1, 5):
        found = outcomes(kind, drafted(kind, requests), max_batch=max_batch)
        assert found.texts == expected
        assert found.is_mixed


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
def test_a_text_that_drafts_decide_is_that_of_any_chunks_and_company(kind):
    shared = tuple(b"A beginning that is long enough to be copied from lane to lane. ")
    requests = [replace(one, prompt_ids=shared + one.prompt_ids) for one in conditioned("drawn", 2)]
    requests = drafted(kind, requests, verification=REJECTION)
    requests[0] = replace(requests[0], n=2)
    expected = outcomes(kind, requests, max_batch=1)
    assert expected.is_mixed
    others = [replace(one, id=f"other {one.id}") for one in plain(requests)]
    found = outcomes(kind, [*others, *requests[::-1]], max_batch=4, step_tokens=40).texts
    assert {key: found[key] for key in expected.texts} == expected.texts


def test_no_more_is_drafted_than_a_block_has():
    one = conditioned("greedy", 1)
    for kind, most in (("dflash", 5), ("dspark", 5)):
        found = outcomes(kind, drafted(kind, one, 16))
        assert found.texts == outcomes(kind, plain(one)).texts
        assert 0 < found.proposed <= most * len(found.texts["greedy 0", 0][0])
