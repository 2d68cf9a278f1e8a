"""A chain may be reordered; what is unsound is refused and what is doubtful is said, naming both stages."""

import pytest

from processors.base import Admission
from processors.catalog import BUILTIN, Phase
from processors.chain import Chain, check_order, doubts, expand, reorder, temperature_last
from processors.errors import ChainError
from processors.pipeline import Pipeline
from processors.testing.checks import toy_env
from processors.testing.examples import examples

FULL = Chain.parse("suppress=[1] | repetition=1.2 | temperature=0.7 | min_p=0.1 | top_k=5")


def names(chain):
    return [name for name, _ in chain]


def test_groups_and_phases_stand_for_their_stages():
    assert expand(["penalties", "temperature"]) == ("repetition", "frequency", "presence", "temperature")
    truncating = [spec.name for spec in BUILTIN if spec.phase == Phase.TRUNCATE]
    assert expand(["truncate"]) == tuple(truncating)
    assert {"top_k", "top_p", "min_p"} < set(truncating)


def test_a_named_order_is_taken_and_unnamed_masks_come_first():
    assert names(reorder(FULL, ["top_k", "min_p", "penalties", "temperature"])) == [
        "suppress",
        "top_k",
        "min_p",
        "repetition",
        "temperature",
    ]


WRONG = [
    (["temperature", "min_p", "top_k"], "leaves out repetition"),
    (["penalties", "repetition"], "repetition stands twice"),
    (["temprature"], "no stage 'temprature' to order. Did you mean 'temperature'"),
]


def test_an_order_that_makes_no_sense_is_refused():
    for order, message in WRONG:
        with pytest.raises(ChainError, match=message):
            pytest.fail(f"{order} is taken: {reorder(FULL, order)}")


def test_a_stage_that_stands_twice_is_refused_by_name_with_a_way_out():
    for spec in BUILTIN:
        chain = Chain(tuple((spec.name, params) for params in examples(spec.params)[:1]) * 2)
        with pytest.raises(ChainError, match=f"The stage {spec.name} stands twice in the chain") as in_chain:
            Pipeline(toy_env()).admit(0, chain, Admission())
        with pytest.raises(ChainError, match=f"The stage {spec.name} stands twice in the order") as in_order:
            expand([spec.name, spec.name])
        is_list = spec.name in ("allowed", "suppress", "begin_suppress", "ban", "bias", "sequence_bias")
        for caught in (in_chain, in_order):
            assert ("all its values in one list" in str(caught.value)) == is_list, spec.name
            assert "a subclass with another name" in str(caught.value), spec.name


def test_the_temperature_may_come_last():
    assert names(temperature_last(FULL)) == ["suppress", "repetition", "min_p", "top_k", "temperature"]


def test_a_cut_before_a_mask_is_refused_with_both_names():
    with pytest.raises(ChainError, match="top_k runs before suppress"):
        check_order(Chain.parse("top_k=5 | suppress=[1]"))
    check_order(Chain.parse("top_k=0 | suppress=[1]"))
    check_order(FULL)


def test_an_adjustment_behind_a_cut_is_doubtful():
    assert list(doubts(Chain.parse("top_k=5 | presence=0.5"))) == [
        "presence runs after top_k: it changes only tokens that top_k has left."
    ]
    assert list(doubts(FULL)) == []


def test_nothing_but_adaptive_p_on_a_whole_vocabulary_is_doubtful():
    (said,) = doubts(Chain.parse("adaptive_p=0.3"))
    assert "nothing truncates before it" in said
    assert list(doubts(Chain.parse("min_p=0.05 | adaptive_p=0.3"))) == []
