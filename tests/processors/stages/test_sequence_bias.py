"""sequence_bias: entries 36 and 37."""

import math
import re

import pytest

from processors.errors import TokenError
from tests.helpers.refusal import refusal

INF = math.inf


def biased(run, biases, text, width=6, **env):
    after = run("sequence_bias", {"biases": biases}, [0.0] * width, prompt=text, **env)
    return {token: value for token, value in enumerate(after) if value}


def test_the_last_token_of_a_sequence_is_biased_behind_the_others(run):
    biases = [[[1, 2, 3], 2.0], [4, -1.0], [[5], 0.5]]
    assert biased(run, biases, (0, 1, 2)) == {3: 2, 4: -1, 5: 0.5}
    assert biased(run, biases, (1, 2, 0)) == {4: -1, 5: 0.5}


def test_a_sequence_longer_than_the_text_waits(run):
    assert biased(run, [[[0, 0, 0, 3], 1.0]], (0, 0)) == {}


def test_matches_with_the_same_last_token_add_up(run):
    assert biased(run, [[[1, 2, 3], 2.0], [[2, 3], 1.0], [[0, 3], 8.0], [3, -0.5]], (1, 2)) == {3: 2.5}


def test_prompt_output_and_drafts_are_one_text(run):
    after = run("sequence_bias", {"biases": [[[1, 2, 3], 2.0]]}, [0.0] * 4, prompt=(1,), drafts=(2,))
    assert after == [0, 0, 0, 2]


def test_minus_infinity_bans_and_a_masked_token_stays_masked(run):
    biases = [[[1, 2], -INF], [2, 5.0], [3, 9.0]]
    assert run("sequence_bias", {"biases": biases}, [0.0, 0.0, 0.0, -INF], output=(1,)) == [0, 0, -INF, -INF]


def test_a_text_stands_for_its_tokens(run, vocabulary):
    first, last = vocabulary.encode(" cats", special=False)
    assert biased(run, {" cats": 3.0}, (first,), 284, vocabulary=vocabulary) == {last: 3}


def test_what_cannot_be_biased_is_refused_by_name(run, vocabulary):
    for biases, message in [
        ([["ab", 1.0], [[12], 1.0]], r"sequence_bias names \[?\(?12,?\)? twice, as tokens \[12\]"),
        ([[[], 1.0]], "without tokens"),
        ([["", 1.0]], "without tokens"),
        ([[[5, 999], 1.0]], "names token 999"),
    ]:
        assert re.search(message, refusal(TokenError, biased, run, biases, (), 284, vocabulary=vocabulary)), (
            biases
        )


def test_a_text_without_a_tokenizer_is_refused(run):
    with pytest.raises(TokenError, match="Give ids"):
        biased(run, [["ab", 1.0]], ())
