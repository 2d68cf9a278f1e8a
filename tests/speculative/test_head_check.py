"""The check of a draft head: a right one stays as it is, a wrong one is told what makes it right."""

import pytest

from gencli.errors import ModelError
from gencli.runtime.wiring import read_draft_head
from gencli.speculative.head_check import TEXT, agreements, better
from tests.engine.harness import request
from tests.speculative.agreeing_heads import (
    KINDS,
    MTP,
    TAPS,
    agreeing_eagle1,
    agreeing_eagle3,
    agreeing_medusa,
    make_model,
)
from tests.speculative.head_runs import choice, loaded, outcomes, pair, plain


def checked(head, kind="eagle1"):
    """The agreements of a head on what its model says, which alone Medusa knows."""
    one = request("Once", chain="temperature=0 | ignore_eos=true", max_tokens=120)
    ids = outcomes(kind, plain([one])).texts["Once", 0][0]
    made, runner, _ = read_draft_head(head, loaded(kind), choice(kind))
    return agreements(made, runner, [*one.prompt_ids, *ids])


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_head_stays_as_it_is(kind):
    found = checked(pair(kind).head, kind)
    assert better(found) is found[0]
    assert len(found) > 1
    assert {len(each.shares) for each in found} == {2 if "two layers" in kind else 4}
    assert min(found[0].shares) > 0.6


BEFORE = "reads the states before the final norm"
RIGHT = f"reads states {', '.join(map(str, TAPS))}"


def shifted(step, draft_vocab=None):
    """EAGLE-3 whose configuration names states that are `step` layers off."""
    return agreeing_eagle3(make_model(), draft_vocab=draft_vocab, taps=tuple(tap + step for tap in TAPS))


WRONG = {
    "eagle1": (lambda: agreeing_eagle1(make_model(), is_before=True), BEFORE),
    "medusa": (lambda: agreeing_medusa(make_model(), is_before=True), BEFORE),
    "eagle3 below": (lambda: shifted(-1), RIGHT),
    "eagle3 above": (lambda: shifted(1), RIGHT),
    "eagle3 narrow below": (lambda: shifted(-1, 1500), RIGHT),
    "eagle3 narrow above": (lambda: shifted(1, 1500), RIGHT),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_makes_a_wrong_head_right_is_named(kind, tmp_path):
    make, change = WRONG[kind]
    found = checked(str(make().write(tmp_path / "head")))
    assert better(found).change == change
    assert found[0].shares[0] < 0.1


def test_layers_for_mtp_are_right_in_one_order_and_with_one_feature():
    """MiMo's read the state first. All feed back what is behind their norm."""
    for kind in MTP:
        found = {each.change: each.shares for each in checked(pair(kind).head, kind)}
        order = f"fc reads the {'embedding' if 'mimo' in kind else 'state'} first"
        assert found[order][0] < 0.1 < found[""][0], kind
        assert found["feeds back the state before its norm"][1] < 0.1 < found[""][1], kind


def test_as_many_drafts_are_measured_as_a_head_makes(tmp_path):
    head = agreeing_medusa(make_model(), heads=2).write(tmp_path / "head")
    assert {len(each.shares) for each in checked(str(head))} == {2}


def test_a_text_has_to_be_long_enough():
    head, runner, _ = read_draft_head(pair("eagle1").head, loaded("eagle1"), choice("eagle1"))
    with pytest.raises(ModelError, match="A text of 9 tokens is too short"):
        agreements(head, runner, range(9))
    assert len(loaded("eagle1").tokenizer.encode(TEXT)) >= 256
