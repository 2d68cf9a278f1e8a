"""Parameters are frozen, bounded and strict, and say what was wrong."""

import math

import pytest

from processors.catalog import BUILTIN
from processors.errors import ParamError
from processors.params import describe
from processors.stages.masks import AllowedParams, BanParams
from processors.stages.penalties import BiasParams, RepetitionParams
from processors.stages.truncation import TopKParams, TopPParams


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(ParamError, match="no parameter 'penlty'. Did you mean 'penalty'"):
        RepetitionParams.from_mapping({"penlty": 1.1}, stage="repetition")


WRONG = [
    (lambda: TopPParams(p=1.5), "p is 1.5, but has to be a number >= 0 and <= 1"),
    (lambda: TopPParams(p=math.nan), "a finite number"),
    (lambda: TopPParams(p=True), "p is true, but has to be a number"),
    (lambda: TopKParams(k=-2), "k is -2, but has to be a number >= -1"),
    (lambda: TopKParams(k=2.5), "a whole number"),
    (lambda: TopKParams(ties="drop"), "one of cut, keep"),
    (lambda: RepetitionParams(penalty=0), "1.0 means off"),
    (lambda: RepetitionParams(window=0), "null means all tokens"),
    (lambda: AllowedParams(ids=()), "empty list"),
    (lambda: BanParams(texts=[""]), "empty text"),
    (lambda: BiasParams(bias=[[3, math.inf]]), "a finite number"),
]


def test_a_wrong_value_says_what_was_expected():
    for make, message in WRONG:
        with pytest.raises(ParamError, match=message.replace("(", r"\(")):
            pytest.fail(f"{make()} is taken")


WRONG_ITEMS = [
    (lambda: TopPParams(p="x"), (), 'p is "x", but has to be a number'),
    (lambda: AllowedParams(ids=[1, "x"]), (1,), 'ids has "x" in it, where there has to be a whole number'),
    (lambda: BanParams(texts=["a", ""]), (1,), "empty text"),
    (lambda: BiasParams(bias=[[3, 1], [4, "x"]]), (1, 1), 'bias has "x" in it'),
    (lambda: BiasParams(bias={3: 1, "a": "x"}), (1, 1), 'bias has "x" in it'),
    (lambda: BiasParams(bias=[[3, 1], [4]]), (1,), r"bias has \[4\] in it, where there has to be a list"),
]


def test_a_wrong_item_of_a_list_is_named_with_its_place():
    for make, path, message in WRONG_ITEMS:
        with pytest.raises(ParamError, match=message) as caught:
            pytest.fail(f"{make()} is taken")
        assert caught.value.path == path, message


def test_every_default_is_off_and_every_field_has_one_sentence():
    for spec in BUILTIN:
        assert spec.params().is_off(), spec.name
        for name, facts in describe(spec.params).items():
            assert facts["doc"].endswith("."), (spec.name, name)


def test_lists_and_mappings_become_hashable_values():
    assert BiasParams(bias={42: 1, " word": -math.inf}).bias == ((42, 1.0), (" word", -math.inf))
    assert BiasParams(bias={"42": 1}).bias == ((42, 1.0),)
    assert hash(BanParams(texts=["a"])) == hash(BanParams(texts=("a",)))


def test_both_spellings_of_an_absent_top_k_are_off():
    assert TopKParams(k=0).is_off()
    assert TopKParams(k=-1).is_off()
