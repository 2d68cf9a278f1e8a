"""Penalties, entries 25 to 30."""

import math

import pytest

from processors.errors import ParamError, TokenError

INF = math.inf
LOGITS = [4.0, -2.0, 0.0, -INF, 1.0, 1.0]
REPEATED = {"prompt": (0, 1), "output": (1, 1, 2)}


def test_repetition_divides_positive_and_multiplies_negative_logits_once(run):
    assert run("repetition", {"penalty": 2}, LOGITS, **REPEATED) == [2, -4, 0, -INF, 1, 1]


def test_repetition_below_one_encourages(run):
    assert run("repetition", {"penalty": 0.5}, LOGITS, **REPEATED)[:2] == [8, -1]


def test_a_zero_logit_stays_plus_zero_and_a_masked_one_masked(run):
    logits = run("repetition", {"penalty": 3}, LOGITS, output=(2, 3))
    assert math.copysign(1, logits[2]) == 1
    assert logits[3] == -INF


def test_repetition_zero_is_refused_with_what_means_off(run):
    with pytest.raises(ParamError, match=r"1\.0 means off"):
        run("repetition", {"penalty": 0}, LOGITS)


def test_frequency_counts_the_output_only(run):
    assert run("frequency", {"penalty": 0.5}, LOGITS, **REPEATED) == [4, -3, -0.5, -INF, 1, 1]


def test_presence_counts_once(run):
    assert run("presence", {"penalty": 0.5}, LOGITS, **REPEATED) == [4, -2.5, -0.5, -INF, 1, 1]


@pytest.mark.parametrize(("scope", "changed"), [("prompt", [0, 1]), ("output", [1, 2]), ("both", [0, 1, 2])])
@pytest.mark.parametrize("stage", ["repetition", "frequency", "presence"])
def test_scope_says_which_tokens_count(run, stage, scope, changed):
    before = [1.0] * 6
    after = run(stage, {"penalty": 2, "scope": scope}, before, **REPEATED)
    assert [token for token in range(6) if after[token] != before[token]] == changed


@pytest.mark.parametrize(
    ("window", "counts"), [(1, [0, 0, 1]), (2, [0, 1, 1]), (4, [1, 2, 1]), (None, [1, 2, 1])]
)
def test_window_takes_the_last_tokens_of_the_scope(run, window, counts):
    logits = run("frequency", {"penalty": 1, "window": window}, [0.0] * 3, output=(0, 1, 1, 2))
    assert [-logit for logit in logits] == counts


def test_a_window_of_zero_is_refused(run):
    with pytest.raises(ParamError, match="null means all"):
        run("frequency", {"penalty": 1, "window": 0}, LOGITS)


def test_drafts_count_as_output(run):
    assert run("frequency", {"penalty": 1}, [0.0] * 3, output=(1,), drafts=(1, 2)) == [0, -2, -1]


def test_special_tokens_are_exempt_from_repetition_by_default(run, vocabulary):
    logits = run("repetition", {"penalty": 2}, [1.0] * 284, prompt=(0, 2, 5), vocabulary=vocabulary)
    assert [token for token in range(284) if logits[token] != 1] == [5]


def test_exempt_takes_stop_ids_texts_and_ids(run, vocabulary):
    (cat,) = vocabulary.encode(" cat", special=False)
    logits = run(
        "presence",
        {"penalty": 1, "exempt": ["stop", " cat", 8]},
        [0.0] * 284,
        output=(1, 7, cat, 8, 9),
        stop_ids=(7,),
        eos_ids=(1,),
        vocabulary=vocabulary,
    )
    assert [token for token in range(284) if logits[token]] == [9]


def test_an_exempt_text_of_several_tokens_is_refused(run, vocabulary):
    with pytest.raises(TokenError, match="presence: exempt names the text ' cats'"):
        run("presence", {"penalty": 1, "exempt": [" cats"]}, [0.0] * 284, vocabulary=vocabulary)


def test_the_end_of_text_id_counts_like_any_other_where_it_is_not_exempt(run):
    # Padding is never counted by id [28], so an end-of-text id in the prompt is.
    assert run("presence", {"penalty": 1, "scope": "both"}, [0.0] * 2, prompt=(1,), eos_ids=(1,)) == [0, -1]


def test_huge_penalties_leave_legal_tokens_finite(run):
    assert all(map(math.isfinite, run("frequency", {"penalty": 1e300}, [0.0] * 3, output=(0, 0))))


def test_ids_beyond_the_logits_are_not_counted(run):
    assert run("presence", {"penalty": 1}, [0.0] * 2, output=(5, 1)) == [0, -1]
    assert run("presence", {"penalty": 1}, [0.0] * 2, output=(5,)) == [0, 0]
