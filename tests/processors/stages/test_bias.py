"""Bias, entries 36 and 37."""

import math

import pytest

from processors.errors import ParamError, TokenError
from tests.helpers.refusal import refusal

INF = math.inf


def test_bias_adds_and_leaves_the_rest(run):
    assert run("bias", {"bias": {"1": 2.5, "3": -1}}, [0, 1, 2, 3.0]) == [0, 3.5, 2, 2]


def test_minus_infinity_bans(run):
    assert run("bias", {"bias": {0: -INF}}, [0, 1.0]) == [-INF, 1]


def test_a_masked_token_stays_masked(run):
    assert run("bias", {"bias": {0: 1e6}}, [-INF, 1.0]) == [-INF, 1]


def test_a_finite_bias_never_bans_and_never_overflows(run):
    low, high = run("bias", {"bias": {0: -1e300, 1: 1e300}}, [0.0, 0.0])
    assert math.isfinite(low)
    assert math.isfinite(high)


def test_a_text_stands_for_its_token(run, vocabulary):
    logits = [0.0] * vocabulary.vocab_size
    (token,) = vocabulary.encode(" cat", special=False)
    assert run("bias", {"bias": {" cat": 3}}, logits, vocabulary=vocabulary)[token] == 3


def test_a_text_of_several_tokens_is_refused_with_its_pieces(run, vocabulary):
    with pytest.raises(TokenError, match=r"2 tokens: ' cat' \(6\) \+ 's' \(\d+\)"):
        run("bias", {"bias": {" cats": 1}}, [0.0] * vocabulary.vocab_size, vocabulary=vocabulary)


def test_a_text_without_a_tokenizer_is_refused(run):
    with pytest.raises(TokenError, match="no tokenizer"):
        run("bias", {"bias": {"a": 1}}, [0.0])


def test_a_token_named_twice_is_refused(run, vocabulary):
    (token,) = vocabulary.encode("cat", special=False)
    with pytest.raises(TokenError, match=f"token {token} twice"):
        run("bias", {"bias": {token: 1, "cat": 1}}, [0.0] * vocabulary.vocab_size, vocabulary=vocabulary)


def test_an_id_beyond_the_logits_is_refused(run):
    with pytest.raises(TokenError, match="token 2, but ids go from 0 to 1"):
        run("bias", {"bias": {2: 1}}, [0.0, 0.0])


def test_plus_infinity_and_nan_are_refused(run):
    for value in [INF, math.nan]:
        assert refusal(ParamError, run, "bias", {"bias": {0: value}}, [0.0]), value
