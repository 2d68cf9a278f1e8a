"""length_decay and length_boost: entry 34."""

import math

import pytest

from processors.errors import ParamError, TokenError
from processors.stages.forcing import LengthDecayParams
from tests.processors.vectors.run import Words

INF = math.inf


def test_decay_begins_behind_its_start_and_moves_the_end_up_on_both_sides_of_zero(run):
    for count, factor in ((2, 1), (3, 1), (4, 1.5), (6, 1.5**3)):
        after = run(
            "length_decay", {"decay": (3, 1.5)}, [2.0, -2.0, 1.0], output=(2,) * count, eos_ids=(0, 1)
        )
        assert after == pytest.approx([2 + 2 * (factor - 1), -2 + 2 * (factor - 1), 1])


def test_the_prompt_is_not_counted_and_a_masked_end_stays_masked(run):
    assert run("length_decay", {"decay": (1, 9)}, [1.0, 1.0], prompt=(1,) * 9, eos_ids=(0,)) == [1, 1]
    assert run("length_decay", {"decay": (0, 9)}, [-INF, 1.0], output=(1, 1), eos_ids=(0,)) == [-INF, 1]


def test_a_huge_factor_leaves_the_end_finite_and_zero_zero(run):
    after = run("length_decay", {"decay": (0, 1e9)}, [0.0, 1.0, -1.0], output=(1,) * 999, eos_ids=(0, 1))
    assert after[0] == 0
    assert math.isfinite(after[1])


def test_a_factor_of_zero_is_refused_and_one_is_off(run):
    with pytest.raises(ParamError, match=r"1\.0 means off"):
        run("length_decay", {"decay": (3, 0)}, [0.0])
    assert LengthDecayParams((3, 1.0)).is_off()


def test_the_boost_is_reached_at_ten_tokens(run):
    for power, boosts in [(1, (0, 0.1, 1)), (2, (0, 0.01, 1)), (0, (1, 1, 1))]:
        for count, boost in zip((0, 1, 10), boosts, strict=True):
            after = run(
                "length_boost", {"boost": 1, "power": power}, [0.5, 0.5], output=(1,) * count, eos_ids=(0,)
            )
            assert after == pytest.approx([0.5 + boost, 0.5]), power


def test_a_boost_may_wait_for_the_end_of_a_sentence_in_whatever_tokens(run):
    words = Words(("", "a", ".", "a.", "!", "?"))
    params = {"boost": 10, "power": 0, "after": [".", "!?"]}
    ends = {(1,): 0, (2,): 10, (1, 3): 10, (3, 1): 0, (4,): 0, (4, 5): 10, (1, 5): 0}
    for text, boost in ends.items():
        for cut in range(len(text) + 1):
            parts = {"prompt": text[:cut], "drafts": text[cut:]}
            assert run("length_boost", params, [0.0] * 6, vocabulary=words, eos_ids=(0,), **parts)[0] == boost


def test_texts_without_a_tokenizer_are_refused(run):
    with pytest.raises(TokenError, match="no tokenizer"):
        run("length_boost", {"boost": 1, "after": ["."]}, [0.0], eos_ids=(0,))
    with pytest.raises(ParamError, match="after has an empty text"):
        run("length_boost", {"boost": 1, "after": [""]}, [0.0])
