"""Penalties, entries 25 to 30."""

import math

import pytest
import torch

from processors.base import Admission, Env
from processors.errors import ParamError, TokenError
from processors.history import History
from processors.registry import builtin_registry
from processors.rows import Rows

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


def test_scope_says_which_tokens_count(run):
    for scope, changed in [("prompt", [0, 1]), ("output", [1, 2]), ("both", [0, 1, 2])]:
        for stage in ["repetition", "frequency", "presence"]:
            before = [1.0] * 6
            after = run(stage, {"penalty": 2, "scope": scope}, before, **REPEATED)
            assert [token for token in range(6) if after[token] != before[token]] == changed, (scope, stage)


def test_window_takes_the_last_tokens_of_the_scope(run):
    for window, counts in [(1, [0, 0, 1]), (2, [0, 1, 1]), (4, [1, 2, 1]), (None, [1, 2, 1])]:
        logits = run("frequency", {"penalty": 1, "window": window}, [0.0] * 3, output=(0, 1, 1, 2))
        assert [-logit for logit in logits] == counts, window


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


def test_the_older_half_of_the_window_gets_a_share_of_the_penalty(run):
    """koboldcpp: of five tokens the first two are older; the newest occurrence decides."""
    text = {"prompt": (0, 1, 2), "output": (3, 1)}
    after = run("repetition", {"penalty": 3, "slope": 0.25}, [3.0, -3.0, 3.0, 3.0, 3.0], **text)
    assert after == [2, -9, 1, 1, 3]
    assert run("repetition", {"penalty": 3, "slope": 0.25, "window": 4}, [3.0] * 4, **text) == [3, 1, 2, 1]
    assert run("repetition", {"penalty": 0.5, "slope": 0.25}, [3.0] * 4, **text) == [6, 6, 6, 6]


def test_a_penalty_fades_behind_the_tokens_that_it_lasts_for(run):
    """exllamav3's test in its own space, and in that of exllamav2."""
    for space, faded in [("penalty", [2 / 1.25, 2 / 1.5, 2 / 1.75]), ("logit", [1.75, 1.5, 1.25])]:
        params = {"penalty": 2, "sustain": 4, "decay": 4, "decay_space": space}
        after = run("repetition", params, [2.0] * 10, prompt=tuple(range(10)))
        assert after == pytest.approx([2, 2, 2, *faded, 1, 1, 1, 1]), space


def test_without_a_decay_a_penalty_ends_at_once(run):
    params = {"penalty": 2, "sustain": 2}
    assert run("repetition", params, [2.0] * 5, prompt=(0, 1, 0), output=(2,)) == [1, 2, 1, 2, 2]


def test_a_fading_penalty_respects_scope_exempt_ids_and_the_width(run):
    params = {"penalty": 2, "sustain": 1, "decay": 2, "scope": "prompt", "exempt": [1]}
    assert run("repetition", params, [2.0] * 4, prompt=(9, 0, 1), output=(2,)) == [
        pytest.approx(4 / 3),
        2,
        2,
        2,
    ]
    assert run("repetition", params, [2.0] * 4, output=(2,)) == [2.0] * 4


def test_rows_with_a_full_penalty_keep_their_bits_beside_one_that_fades():
    stage = builtin_registry().load("repetition")(Env(50))
    history, plain, fading = History(), stage.Params(1.37), stage.Params(1.37, slope=0.3, sustain=3, decay=2)
    for slot, params in enumerate((plain, fading)):
        history.admit(slot, tuple(range(slot, 40)))
        stage.admit(slot, params, Admission())
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    together = stage.apply(logits.clone(), Rows.build(history, [0, 1]))
    alone = stage.apply(logits[:1].clone(), Rows.build(history, [0]))
    assert torch.equal(together[:1], alone)
    assert not torch.equal(together[1, :37], logits[1, :37] / 1.37)
